import type { Gpu } from '../device.ts';

/** Workgroups that cover `threads` threads. */
export const groupsOf = (threads: number, workgroup = 64): number => Math.ceil(threads / workgroup);

/**
 * Threads that share one row in the row-wise kernels. Fixed per adapter, since it fixes the order of their sums: rollout
 * and training must use the same. A software adapter wants one subgroup (no barrier costs anything there), hardware more.
 */
export const rowThreads = (gpu: Gpu): { WG: number } => (gpu.adapter.isSoftware ? SOFTWARE : HARDWARE);
const SOFTWARE = { WG: 4 };
const HARDWARE = { WG: 64 };
