import code from '../../../kernels/add_into.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const addIntoKernel = defineKernel({
  name: 'add_into',
  code,
  read: ['x'],
  write: ['y'],
  params: { n: 'u32' },
});

/** Records y += x over the first n values. x [n], y [n] in and out. */
export function addInto(gpu: Gpu, { x, y, n }: { x: View; y: View; n: number }): void {
  expectElements('add_into x [n]', x, n);
  expectElements('add_into y [n]', y, n);
  gpu.dispatch(addIntoKernel, { x, y }, { n }, groupsOf(n));
}
