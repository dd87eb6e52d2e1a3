import code from '../../../kernels/swiglu.wgsl?raw';
import codeBwd from '../../../kernels/swiglu_bwd.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const swigluKernel = defineKernel({
  name: 'swiglu',
  code,
  read: ['gu'],
  write: ['y'],
  params: { N: 'u32', F: 'u32' },
});

const swigluBwdKernel = defineKernel({
  name: 'swiglu_bwd',
  code: codeBwd,
  read: ['gu', 'dy'],
  write: ['dgu'],
  params: { N: 'u32', F: 'u32' },
});

/** Records y = silu(gate) * up. gu [N, 2F], y [N, F] out. */
export function swiglu(gpu: Gpu, { gu, y, N, F }: { gu: View; y: View; N: number; F: number }): void {
  expectElements('swiglu gu [N, 2F]', gu, N * 2 * F);
  expectElements('swiglu y [N, F]', y, N * F);
  gpu.dispatch(swigluKernel, { gu, y }, { N, F }, groupsOf(Math.ceil(N / 4) * F));
}

/** Records the gradient of gate and up. gu [N, 2F], dy [N, F], dgu [N, 2F] out. */
export function swigluBwd(gpu: Gpu, args: { gu: View; dy: View; dgu: View; N: number; F: number }): void {
  const { gu, dy, dgu, N, F } = args;
  expectElements('swiglu_bwd dgu [N, 2F]', dgu, N * 2 * F);
  gpu.dispatch(swigluBwdKernel, { gu, dy, dgu }, { N, F }, groupsOf(Math.ceil(N / 4) * F));
}
