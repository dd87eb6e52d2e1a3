import codeAdjust from '../../../kernels/adjust_logits.wgsl?raw';
import codeRecord from '../../../kernels/record_draw.wgsl?raw';
import codeTop from '../../../kernels/top_logprobs.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf, rowThreads } from './grid.ts';

const adjustLogitsKernel = defineKernel({
  name: 'adjust_logits',
  code: codeAdjust,
  read: ['logits', 'live', 'extras', 'counts', 'stops', 'state'],
  write: ['adjusted', 'entries'],
  params: { first: 'u32', n: 'u32', V: 'u32' },
});

const recordDrawKernel = defineKernel({
  name: 'record_draw',
  code: codeRecord,
  read: ['entries', 'logits', 'stats', 'control', 'state'],
  write: ['drawn', 'counts', 'details'],
  params: { n: 'u32', V: 'u32', cap: 'u32' },
});

const topLogprobsKernel = defineKernel({
  name: 'top_logprobs',
  code: codeTop,
  read: ['entries', 'logits', 'stats', 'control', 'extras', 'state'],
  write: ['details'],
  params: { n: 'u32', V: 'u32', cap: 'u32' },
});

interface AdjustLogitsArgs {
  /** [R, V] */
  logits: View;
  /** [rows, 4] */
  live: View;
  /** [slots, EXTRA_WIDTH] */
  extras: View;
  /** [slots, V] */
  counts: View;
  /** [slots, 4] */
  stops: View;
  /** [slots, 4] */
  state: View;
  /** [n, V] out */
  adjusted: View;
  /** [n, 4] out */
  entries: View;
  /** First entry of `live` to change, and number of entries. */
  first: number;
  n: number;
  V: number;
}

/** Records the adjustment of logits for entries first .. first + n - 1 of `live`. Layouts: kernels/adjust_logits.wgsl. */
export function adjustLogits(gpu: Gpu, args: AdjustLogitsArgs): void {
  const { logits, live, extras, counts, stops, state, adjusted, entries, first, n, V } = args;
  expectElements('adjust_logits live [rows, 4]', live, (first + n) * 4);
  expectElements('adjust_logits adjusted [n, V]', adjusted, n * V);
  expectElements('adjust_logits entries [n, 4]', entries, n * 4);
  const views = { logits, live, extras, counts, stops, state, adjusted, entries };
  gpu.dispatch(adjustLogitsKernel, views, { first, n, V }, n, rowThreads(gpu));
}

/** Arguments that recordDraw and topLogprobs share. */
interface DrawnArgs {
  /** [n, 4] as adjust_logits wrote it */
  entries: View;
  /** [R, V] unchanged */
  logits: View;
  /** [R, 2] log-sum-exp and entropy of the logits, at the temperature of the entries */
  stats: View;
  /** [slots, 8] */
  control: View;
  /** [slots, 4] */
  state: View;
  /** [slots, cap, DETAIL_WIDTH] out */
  details: View;
  n: number;
  V: number;
  cap: number;
}

/**
 * Records values of the token that was just sampled for each entry: its log-prob and entropy under the unchanged logits, its log mass, and
 * how often the turn has it. See kernels/record_draw.wgsl.
 */
export function recordDraw(gpu: Gpu, args: DrawnArgs & { drawn: View; counts: View }): void {
  const { entries, logits, stats, control, state, drawn, counts, details, n, V, cap } = args;
  expectElements('record_draw entries [n, 4]', entries, n * 4);
  const views = { entries, logits, stats, control, state, drawn, counts, details };
  gpu.dispatch(recordDrawKernel, views, { n, V, cap }, groupsOf(n));
}

/** Records the most likely tokens at the position of the token that was just sampled for each entry. */
export function topLogprobs(gpu: Gpu, args: DrawnArgs & { extras: View }): void {
  const { entries, logits, stats, control, extras, state, details, n, V, cap } = args;
  expectElements('top_logprobs entries [n, 4]', entries, n * 4);
  const views = { entries, logits, stats, control, extras, state, details };
  gpu.dispatch(topLogprobsKernel, views, { n, V, cap }, n, rowThreads(gpu));
}
