/** Converts packed weights back to float32. */

import codeUnpack from '../../../kernels/unpack.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { PACKED_FORMATS, packedBytes, type PackedFormat } from '../packedFormat.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const unpackKernel = defineKernel({
  name: 'unpack',
  code: codeUnpack,
  read: ['words', 'tokens'],
  write: ['y'],
  params: { N: 'u32', C: 'u32', first: 'u32', rows: 'u32' },
});

const overrides = (GATHER: number) =>
  PACKED_FORMATS.map((_, FORMAT) => (GATHER === 0 ? { FORMAT } : { FORMAT, GATHER }));
const [WHOLE, GATHERED] = [overrides(0), overrides(1)];
const optionsOf = (format: PackedFormat, of: Record<string, number>[]) => of[PACKED_FORMATS.indexOf(format)];

/** Records y = n packed values as float32. */
export function unpack(gpu: Gpu, args: { packed: View; y: View; n: number; format: PackedFormat }): void {
  const { packed, y, n, format } = args;
  expectElements('unpack packed [words]', packed, packedBytes(format, n) / 4);
  expectElements('unpack y [n]', y, n);
  const params = { N: n, C: 1, first: 0, rows: n };
  gpu.dispatch(unpackKernel, { words: packed, tokens: packed, y }, params, groupsOf(n), optionsOf(format, WHOLE));
}

interface UnpackRowsArgs {
  /** [rows, C] packed */
  packed: View;
  /** [N] */
  tokens: View;
  /** [N, C] out; rows of other tokens stay unchanged */
  y: View;
  N: number;
  C: number;
  /** Token id of the first row of the table. */
  first: number;
  rows: number;
  format: PackedFormat;
}

/** Records y[n] = row tokens[n] of a packed table. */
export function unpackRows(gpu: Gpu, { packed, tokens, y, format, ...sizes }: UnpackRowsArgs): void {
  const { N, C } = sizes;
  expectElements('unpack tokens [N]', tokens, N);
  expectElements('unpack y [N, C]', y, N * C);
  gpu.dispatch(unpackKernel, { words: packed, tokens, y }, sizes, groupsOf(N * C), optionsOf(format, GATHERED));
}
