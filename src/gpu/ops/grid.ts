import type { Gpu } from '../device.ts';

/** Workgroups that cover `threads` threads. */
export const groupsOf = (threads: number, workgroup = 64): number => Math.ceil(threads / workgroup);

/**
 * How row-wise kernels share out rows: LANES threads a row, WG / LANES rows a workgroup. LANES is fixed per adapter, since
 * it fixes the order of their sums: rollout and training must use the same. A thread a row is fastest on a software
 * adapter, where barriers cost most (docs/lab/log.md); hardware wants neighbouring threads on neighbouring columns.
 */
export const rowGrid = (gpu: Gpu): { WG: number; LANES: number } => (gpu.adapter.isSoftware ? SOFTWARE : HARDWARE);
const SOFTWARE = { WG: 16, LANES: 1 };
const HARDWARE = { WG: 64, LANES: 64 };

/** Workgroups that cover `rows` rows of a kernel dispatched with `rowGrid`. */
export function rowGroups(gpu: Gpu, rows: number): number {
  const { WG, LANES } = rowGrid(gpu);
  return Math.ceil(rows / (WG / LANES));
}

/** Threads that share one row in sample.wgsl, which bisects: its barriers are few beside its passes over the row. */
export const rowThreads = (gpu: Gpu): { WG: number } => (gpu.adapter.isSoftware ? FEW_THREADS : MANY_THREADS);
const FEW_THREADS = { WG: 4 };
const MANY_THREADS = { WG: 64 };
