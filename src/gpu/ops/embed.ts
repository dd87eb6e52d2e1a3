import code from '../../../kernels/embed.wgsl?raw';
import codeBwd from '../../../kernels/embed_bwd.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';
import { unpackRows } from './unpack.ts';

const embedKernel = defineKernel({
  name: 'embed',
  code,
  read: ['tokens', 'table'],
  write: ['x'],
  params: { N: 'u32', C: 'u32', first: 'u32', rows: 'u32' },
});

const embedBwdKernel = defineKernel({
  name: 'embed_bwd',
  code: codeBwd,
  read: ['ids', 'start', 'rows', 'dx'],
  write: ['dtable'],
  params: { U: 'u32', C: 'u32', first: 'u32', count: 'u32' },
});

/** Rows first .. first + rows - 1 of a matrix. A table that exceeds the device's binding limit is split into several such parts. */
export interface RowChunk {
  /** [rows, C] */
  view: View;
  first: number;
  rows: number;
}

/** Records x[n] = table[tokens[n]]. tokens [N], table [V, C], x [N, C] out. */
export function embed(gpu: Gpu, args: { tokens: View; table: RowChunk[]; x: View; N: number; C: number }): void {
  const { tokens, table, x, N, C } = args;
  expectElements('embed tokens [N]', tokens, N);
  expectElements('embed x [N, C]', x, N * C);
  for (const { view, first, rows } of table) {
    const sizes = { N, C, first, rows };
    if (view.packed) unpackRows(gpu, { packed: view, tokens, y: x, format: view.packed.format, ...sizes });
    else gpu.dispatch(embedKernel, { tokens, table: view, x }, sizes, groupsOf(N * C));
  }
}

interface EmbedBwdArgs {
  /** [U] distinct tokens */
  ids: View;
  /** [U + 1] offsets into `rows`, by distinct token */
  start: View;
  /** [N] row numbers of dx, sorted by token */
  rows: View;
  /** [N, C] */
  dx: View;
  /** [V, C] accumulates */
  dtable: RowChunk[];
  U: number;
  C: number;
}

/** Records dtable[token] += sum of the rows of dx with that token, in a fixed order. */
export function embedBwd(gpu: Gpu, { ids, start, rows, dx, dtable, U, C }: EmbedBwdArgs): void {
  expectElements('embed_bwd start [U + 1]', start, U + 1);
  for (const { view, first, rows: count } of dtable)
    gpu.dispatch(embedBwdKernel, { ids, start, rows, dx, dtable: view }, { U, C, first, count }, groupsOf(U * C));
}
