import code from '../../../kernels/column_sum.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

export const columnSumKernel = defineKernel({
  name: 'column_sum',
  code,
  read: ['x'],
  write: ['y'],
  params: { N: 'u32', C: 'u32' },
});

/** Records y[c] += sum_n x[n, c]. x [N, C], y [C] accumulates. */
export function columnSum(gpu: Gpu, { x, y, N, C }: { x: View; y: View; N: number; C: number }): void {
  expectElements('column_sum x [N, C]', x, N * C);
  gpu.dispatch(columnSumKernel, { x, y }, { N, C }, groupsOf(C));
}
