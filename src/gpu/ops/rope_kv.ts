import code from '../../../kernels/rope_kv.wgsl?raw';
import codeBwd from '../../../kernels/rope_kv_bwd.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const params = { N: 'u32', H: 'u32', K: 'u32', D: 'u32' } as const;

export const ropeKvKernel = defineKernel({
  name: 'rope_kv',
  code,
  read: ['qkv', 'positions', 'kvRows', 'table'],
  write: ['q', 'kv'],
  params,
});

const ropeKvBwdKernel = defineKernel({
  name: 'rope_kv_bwd',
  code: codeBwd,
  read: ['dq', 'dkv', 'positions', 'table'],
  write: ['dqkv'],
  params,
});

export interface Heads {
  N: number;
  H: number;
  K: number;
  D: number;
}

/** Number of threads: one per row, block of four heads, and rotated pair. */
const threads = ({ N, H, K, D }: Heads): number => (N * Math.ceil((H + 2 * K) / 4) * D) / 2;

interface RopeKvArgs extends Heads {
  /** [N, (H + 2K) * D] */
  qkv: View;
  /** [N] */
  positions: View;
  /** [N] */
  kvRows: View;
  /** [P, D] cos | sin */
  table: View;
  /** [N, H * D] out */
  q: View;
  /** [rows, 2 * K * D] out at kvRows */
  kv: View;
}

/** Records the split of qkv, the rotation and the write to the cache; see kernels/rope_kv.wgsl. */
export function ropeKv(gpu: Gpu, { qkv, positions, kvRows, table, q, kv, N, H, K, D }: RopeKvArgs): void {
  expectElements('rope_kv qkv [N, (H + 2K) * D]', qkv, N * (H + 2 * K) * D);
  expectElements('rope_kv q [N, H * D]', q, N * H * D);
  gpu.dispatch(
    ropeKvKernel,
    { qkv, positions, kvRows, table, q, kv },
    { N, H, K, D },
    groupsOf(threads({ N, H, K, D })),
  );
}

interface RopeKvBwdArgs extends Heads {
  /** [N, H * D] */
  dq: View;
  /** [N, 2 * K * D] */
  dkv: View;
  /** [N] */
  positions: View;
  /** [P, D] */
  table: View;
  /** [N, (H + 2K) * D] out */
  dqkv: View;
}

/** Records the gradient of the fused q/k/v product. */
export function ropeKvBwd(gpu: Gpu, { dq, dkv, positions, table, dqkv, N, H, K, D }: RopeKvBwdArgs): void {
  expectElements('rope_kv_bwd dqkv [N, (H + 2K) * D]', dqkv, N * (H + 2 * K) * D);
  gpu.dispatch(ropeKvBwdKernel, { dq, dkv, positions, table, dqkv }, { N, H, K, D }, groupsOf(threads({ N, H, K, D })));
}
