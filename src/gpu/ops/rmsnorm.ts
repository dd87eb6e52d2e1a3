import code from '../../../kernels/rmsnorm.wgsl?raw';
import codeBwd from '../../../kernels/rmsnorm_bwd.wgsl?raw';
import codeBwdWeight from '../../../kernels/rmsnorm_bwd_weight.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { columnSum } from './column_sum.ts';
import { groupsOf, rowGrid, rowGroups } from './grid.ts';

export const rmsnormKernel = defineKernel({
  name: 'rmsnorm',
  code,
  read: ['x', 'weight'],
  write: ['y', 'rstd'],
  params: { N: 'u32', C: 'u32', eps: 'f32' },
});

export const rmsnormBwdKernel = defineKernel({
  name: 'rmsnorm_bwd',
  code: codeBwd,
  read: ['x', 'weight', 'rstd', 'dy', 'dres'],
  write: ['dx'],
  params: { N: 'u32', C: 'u32' },
});

const rmsnormBwdWeightKernel = defineKernel({
  name: 'rmsnorm_bwd_weight',
  code: codeBwdWeight,
  read: ['x', 'rstd', 'dy'],
  write: ['partial'],
  params: { N: 'u32', C: 'u32' },
});

/** Number of rows that one thread of rmsnorm_bwd_weight.wgsl sums. `partial` needs ceil(N / RMSNORM_BLOCK_ROWS) rows. */
export const RMSNORM_BLOCK_ROWS = 64;

interface RmsnormArgs {
  /** [N, C] */
  x: View;
  /** [C] */
  weight: View;
  /** [N, C] out; must not overlap x */
  y: View;
  /** [N] out, for the backward pass */
  rstd: View;
  N: number;
  C: number;
  eps: number;
}

/** Records y = x * weight / rms(x). Formula, grid and numerics: kernels/rmsnorm.wgsl. */
export function rmsnorm(gpu: Gpu, { x, weight, y, rstd, N, C, eps }: RmsnormArgs): void {
  expectElements('rmsnorm x [N, C]', x, N * C);
  expectElements('rmsnorm weight [C]', weight, C);
  expectElements('rmsnorm y [N, C]', y, N * C);
  expectElements('rmsnorm rstd [N]', rstd, N);
  gpu.dispatch(rmsnormKernel, { x, weight, y, rstd }, { N, C, eps }, rowGroups(gpu, N), rowGrid(gpu));
}

interface RmsnormBwdArgs {
  /** [N, C] the norm's input */
  x: View;
  /** [C] */
  weight: View;
  /** [N] */
  rstd: View;
  /** [N, C] */
  dy: View;
  /** [N, C] gradient of the residual stream, added to dx. Undefined: nothing is added. */
  dres?: View | undefined;
  /** [N, C] out; must not overlap dres */
  dx: View;
  /** [C] accumulates. Undefined if the weight is frozen. */
  dweight?: View | undefined;
  /** [ceil(N / RMSNORM_BLOCK_ROWS), C] scratch */
  partial: View;
  N: number;
  C: number;
}

/** Records the backward pass of rmsnorm: dx (plus dres), and adds to dweight. */
export function rmsnormBwd(gpu: Gpu, args: RmsnormBwdArgs): void {
  const { x, weight, rstd, dy, dres, dx, dweight, partial, N, C } = args;
  const blocks = Math.ceil(N / RMSNORM_BLOCK_ROWS);
  expectElements('rmsnorm_bwd dx [N, C]', dx, N * C);
  expectElements('rmsnorm_bwd partial [blocks, C]', partial, blocks * C);
  const overrides = { ...rowGrid(gpu), ADD: dres ? 1 : 0 };
  gpu.dispatch(rmsnormBwdKernel, { x, weight, rstd, dy, dres: dres ?? dy, dx }, { N, C }, rowGroups(gpu, N), overrides);
  if (!dweight) return;
  gpu.dispatch(rmsnormBwdWeightKernel, { x, rstd, dy, partial }, { N, C }, groupsOf(blocks * C));
  columnSum(gpu, { x: partial, y: dweight, N: blocks, C });
}
