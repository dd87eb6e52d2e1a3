import type { Gpu } from '../device.ts';

/** Number of workgroups of 64 that cover `threads` threads. */
export const groupsOf = (threads: number): number => Math.ceil(threads / 64);

/**
 * Grid of kernels that work row by row: LANES threads per row, WG / LANES rows per workgroup. LANES is fixed per adapter, because it fixes
 * the order of the sums, which must be the same in rollout and training. One thread per row is fastest on a software adapter, where
 * barriers are slow (docs/lab/log.md). On hardware, neighbouring threads must read neighbouring columns.
 */
export const rowGrid = (gpu: Gpu): { WG: number; LANES: number } => (gpu.adapter.isSoftware ? SOFTWARE : HARDWARE);
const SOFTWARE = { WG: 16, LANES: 1 };
const HARDWARE = { WG: 64, LANES: 64 };

/** Number of workgroups that cover `rows` rows of a kernel dispatched with `rowGrid`. */
export function rowGroups(gpu: Gpu, rows: number): number {
  const { WG, LANES } = rowGrid(gpu);
  return Math.ceil(rows / (WG / LANES));
}

/**
 * Number of threads per row in sample.wgsl. It can be larger than that of other kernels: the bisection by which sample.wgsl finds the
 * threshold of top-k and top-p has few barriers compared with its passes over the row.
 */
export const rowThreads = (gpu: Gpu): { WG: number } => (gpu.adapter.isSoftware ? FEW_THREADS : MANY_THREADS);
const FEW_THREADS = { WG: 4 };
const MANY_THREADS = { WG: 64 };
