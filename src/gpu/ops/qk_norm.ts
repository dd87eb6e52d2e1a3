import code from '../../../kernels/qk_norm.wgsl?raw';
import codeBwd from '../../../kernels/qk_norm_bwd.wgsl?raw';
import codeBwdWeight from '../../../kernels/qk_norm_bwd_weight.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { columnSum } from './column_sum.ts';
import { groupsOf, rowGrid, rowGroups } from './grid.ts';
import { RMSNORM_BLOCK_ROWS } from './rmsnorm.ts';
import type { Heads } from './rope_kv.ts';

const params = { N: 'u32', H: 'u32', K: 'u32', D: 'u32' } as const;

export const qkNormKernel = defineKernel({
  name: 'qk_norm',
  code,
  read: ['qkv', 'weight'],
  write: ['y', 'rstd'],
  params: { ...params, eps: 'f32' },
});

export const qkNormBwdKernel = defineKernel({
  name: 'qk_norm_bwd',
  code: codeBwd,
  read: ['qkv', 'weight', 'rstd'],
  write: ['dqkv'],
  params,
});

const qkNormBwdWeightKernel = defineKernel({
  name: 'qk_norm_bwd_weight',
  code: codeBwdWeight,
  read: ['qkv', 'rstd', 'dqkv'],
  write: ['partial'],
  params,
});

interface QkNormArgs extends Heads {
  /** [N, (H + 2K) * D] */
  qkv: View;
  /** [2, D] gain of q, gain of k */
  weight: View;
  /** [N, (H + 2K) * D] out; must not overlap qkv */
  y: View;
  /** [N, H + K] out, for the backward pass */
  rstd: View;
  eps: number;
}

/** Records the norm of every q and k head; v is copied. */
export function qkNorm(gpu: Gpu, { qkv, weight, y, rstd, N, H, K, D, eps }: QkNormArgs): void {
  expectElements('qk_norm qkv [N, (H + 2K) * D]', qkv, N * (H + 2 * K) * D);
  expectElements('qk_norm weight [2, D]', weight, 2 * D);
  expectElements('qk_norm y [N, (H + 2K) * D]', y, N * (H + 2 * K) * D);
  expectElements('qk_norm rstd [N, H + K]', rstd, N * (H + K));
  gpu.dispatch(
    qkNormKernel,
    { qkv, weight, y, rstd },
    { N, H, K, D, eps },
    rowGroups(gpu, N * (H + 2 * K)),
    rowGrid(gpu),
  );
}

interface QkNormBwdArgs extends Heads {
  /** [N, (H + 2K) * D] before the norm */
  qkv: View;
  /** [2, D] */
  weight: View;
  /** [N, H + K] */
  rstd: View;
  /** [N, (H + 2K) * D] in and out */
  dqkv: View;
  /** [2, D] accumulates. Undefined if the weight is frozen. */
  dweight?: View | undefined;
  /** [ceil(N / RMSNORM_BLOCK_ROWS), 2 * D] scratch */
  partial: View;
}

/** Records the backward pass of qkNorm: adds to dweight, and changes dqkv in place. */
export function qkNormBwd(gpu: Gpu, args: QkNormBwdArgs): void {
  const { qkv, weight, rstd, dqkv, dweight, partial, N, H, K, D } = args;
  const blocks = Math.ceil(N / RMSNORM_BLOCK_ROWS);
  expectElements('qk_norm_bwd dqkv [N, (H + 2K) * D]', dqkv, N * (H + 2 * K) * D);
  expectElements('qk_norm_bwd partial [blocks, 2 * D]', partial, blocks * 2 * D);
  const sizes = { N, H, K, D };
  if (dweight) {
    expectElements('qk_norm_bwd dweight [2, D]', dweight, 2 * D);
    gpu.dispatch(qkNormBwdWeightKernel, { qkv, rstd, dqkv, partial }, sizes, groupsOf(blocks * 2 * D));
    columnSum(gpu, { x: partial, y: dweight, N: blocks, C: 2 * D });
  }
  gpu.dispatch(qkNormBwdKernel, { qkv, weight, rstd, dqkv }, sizes, rowGroups(gpu, N * (H + K)), rowGrid(gpu));
}
