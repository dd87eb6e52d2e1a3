import code from '../../../kernels/bias_rows.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';
import { groupsOf } from './grid.ts';

export const biasRowsKernel = defineKernel({
  name: 'bias_rows',
  code,
  read: ['bias'],
  write: ['y'],
  params: { N: 'u32', C: 'u32' },
});

/** Records y[n, c] += bias[c]. bias [C], y [N, C] accumulates. */
export function biasRows(gpu: Gpu, { bias, y, N, C }: { bias: View; y: View; N: number; C: number }): void {
  expectElements('bias_rows y [N, C]', y, N * C);
  gpu.dispatch(biasRowsKernel, { bias, y }, { N, C }, groupsOf(N * C));
}
