import codeBwd from '../../../kernels/head_bwd.wgsl?raw';
import codeCdf from '../../../kernels/head_cdf.wgsl?raw';
import codeLogprob from '../../../kernels/head_logprob.wgsl?raw';
import codeStats from '../../../kernels/head_stats.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf, rowGrid, rowGroups, rowThreads } from './grid.ts';

export const headStatsKernel = defineKernel({
  name: 'head_stats',
  code: codeStats,
  read: ['logits'],
  write: ['stats'],
  params: { R: 'u32', V: 'u32', invT: 'f32' },
});

const headLogprobKernel = defineKernel({
  name: 'head_logprob',
  code: codeLogprob,
  read: ['logits', 'stats', 'entryRow', 'targets'],
  write: ['logp', 'entropy'],
  params: { E: 'u32', R: 'u32', V: 'u32', firstRow: 'u32', invT: 'f32' },
});

const headCdfKernel = defineKernel({
  name: 'head_cdf',
  code: codeCdf,
  read: ['logits', 'stats', 'entryRow', 'targets'],
  write: ['cdf'],
  params: { E: 'u32', R: 'u32', V: 'u32', firstRow: 'u32', invT: 'f32' },
});

export const headBwdKernel = defineKernel({
  name: 'head_bwd',
  code: codeBwd,
  read: ['stats', 'rowStart', 'rowEntries', 'targets', 'dLogp', 'dEntropy'],
  write: ['logits'],
  params: { R: 'u32', V: 'u32', firstRow: 'u32', invT: 'f32' },
});

interface HeadStatsArgs {
  /** [R, V] */
  logits: View;
  /** [R, 2] out: lse, entropy */
  stats: View;
  R: number;
  V: number;
  temperature: number;
}

/** Records log-sum-exp and entropy of every row. */
export function headStats(gpu: Gpu, { logits, stats, R, V, temperature }: HeadStatsArgs): void {
  expectElements('head_stats logits [R, V]', logits, R * V);
  expectElements('head_stats stats [R, 2]', stats, R * 2);
  gpu.dispatch(headStatsKernel, { logits, stats }, { R, V, invT: 1 / temperature }, rowGroups(gpu, R), rowGrid(gpu));
}

/** Arguments on the entries (tokens to predict) whose rows are in a chunk of logits. */
interface HeadEntriesArgs extends HeadStatsArgs {
  /** [E] */
  entryRow: View;
  /** [E] */
  targets: View;
  E: number;
  /** Number of the head row that is row 0 of `logits`. */
  firstRow: number;
}

interface HeadLogprobArgs extends HeadEntriesArgs {
  /** [E] out */
  logp: View;
  /** [E] out */
  entropy: View;
}

/** Records the log-prob and entropy of every entry whose row is in this chunk. */
export function headLogprob(gpu: Gpu, args: HeadLogprobArgs): void {
  const { logits, stats, entryRow, targets, logp, entropy, E, R, V, firstRow, temperature } = args;
  expectElements('head_logprob logp [E]', logp, E);
  const params = { E, R, V, firstRow, invT: 1 / temperature };
  gpu.dispatch(headLogprobKernel, { logits, stats, entryRow, targets, logp, entropy }, params, groupsOf(E));
}

interface HeadCdfArgs extends HeadEntriesArgs {
  /** [E, 3] out: below, through and total of each entry, as defined in kernels/head_cdf.wgsl */
  cdf: View;
}

/** Records the bounds of each entry's target in the cumulative distribution of its row. Skips entries whose row is not in this chunk. */
export function headCdf(gpu: Gpu, args: HeadCdfArgs): void {
  const { logits, stats, entryRow, targets, cdf, E, R, V, firstRow, temperature } = args;
  expectElements('head_cdf cdf [E, 3]', cdf, E * 3);
  const params = { E, R, V, firstRow, invT: 1 / temperature };
  gpu.dispatch(headCdfKernel, { logits, stats, entryRow, targets, cdf }, params, E, rowThreads(gpu));
}

interface HeadBwdArgs extends HeadStatsArgs {
  /** [rows + 1] */
  rowStart: View;
  /** [E] */
  rowEntries: View;
  /** [E] */
  targets: View;
  /** [E] */
  dLogp: View;
  /** [E] */
  dEntropy: View;
  firstRow: number;
}

/** Replaces logits by the gradient of the loss with respect to them. */
export function headBwd(gpu: Gpu, args: HeadBwdArgs): void {
  const { logits, stats, rowStart, rowEntries, targets, dLogp, dEntropy, R, V, firstRow, temperature } = args;
  expectElements('head_bwd logits [R, V]', logits, R * V);
  const params = { R, V, firstRow, invT: 1 / temperature };
  const views = { stats, rowStart, rowEntries, targets, dLogp, dEntropy, logits };
  gpu.dispatch(headBwdKernel, views, params, rowGroups(gpu, R), rowGrid(gpu));
}
