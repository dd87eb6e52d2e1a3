import code from '../../../kernels/transpose.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const transposeKernel = defineKernel({
  name: 'transpose',
  code,
  read: ['x'],
  write: ['y'],
  params: { N: 'u32', C: 'u32' },
});

/** Number of columns per thread; same value as in the WGSL. */
const EACH = 8;

/** Records y = x^T. x [N, C], y [C, N] out. */
export function transpose(gpu: Gpu, { x, y, N, C }: { x: View; y: View; N: number; C: number }): void {
  expectElements('transpose y [C, N]', y, N * C);
  gpu.dispatch(transposeKernel, { x, y }, { N, C }, groupsOf(N * Math.ceil(C / EACH)));
}
