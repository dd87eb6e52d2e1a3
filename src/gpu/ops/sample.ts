import codeRows from '../../../kernels/decode_rows.wgsl?raw';
import code from '../../../kernels/sample.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf, rowThreads } from './grid.ts';

export const sampleKernel = defineKernel({
  name: 'sample',
  code,
  read: ['logits', 'stats', 'live', 'control', 'stops'],
  write: ['state', 'drawn'],
  params: { first: 'u32', n: 'u32', V: 'u32', cap: 'u32' },
});

const decodeRowsKernel = defineKernel({
  name: 'decode_rows',
  code: codeRows,
  read: ['live', 'slots', 'state'],
  write: ['tokens', 'positions', 'kvRows', 'ranges'],
  params: { n: 'u32' },
});

interface SampleArgs {
  /** [R, V] */
  logits: View;
  /** [R, 2] log-sum-exp and entropy at the temperature of the entries */
  stats: View;
  /** [rows, 4] */
  live: View;
  /** [slots, 8] */
  control: View;
  /** [slots, 4] */
  stops: View;
  /** [slots, 4] in and out */
  state: View;
  /** [slots, cap, 3] out */
  drawn: View;
  /** First entry of `live` to sample for, and number of entries. */
  first: number;
  n: number;
  V: number;
  cap: number;
}

/** Records the sampling of one token for each of the entries first .. first + n - 1 of `live`. Layouts: kernels/sample.wgsl. */
export function sample(gpu: Gpu, args: SampleArgs): void {
  const { logits, stats, live, control, stops, state, drawn, first, n, V, cap } = args;
  expectElements('sample live [rows, 4]', live, (first + n) * 4);
  const views = { logits, stats, live, control, stops, state, drawn };
  gpu.dispatch(sampleKernel, views, { first, n, V, cap }, n, rowThreads(gpu));
}

interface DecodeRowsArgs {
  /** [n, 4] */
  live: View;
  /** [slots, 4] */
  slots: View;
  /** [slots, 4] */
  state: View;
  /** [n] out */
  tokens: View;
  positions: View;
  kvRows: View;
  /** [n, 4] out */
  ranges: View;
  n: number;
}

/** Records the input rows of a decode step. */
export function decodeRows(gpu: Gpu, args: DecodeRowsArgs): void {
  const { live, slots, state, tokens, positions, kvRows, ranges, n } = args;
  expectElements('decode_rows ranges [n, 4]', ranges, n * 4);
  gpu.dispatch(decodeRowsKernel, { live, slots, state, tokens, positions, kvRows, ranges }, { n }, groupsOf(n));
}
