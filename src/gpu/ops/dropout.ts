import code from '../../../kernels/dropout.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const dropoutKernel = defineKernel({
  name: 'dropout',
  code,
  read: ['x'],
  write: ['y'],
  params: { n: 'u32', key0: 'u32', key1: 'u32', threshold: 'u32', scale: 'f32' },
});

interface DropoutArgs {
  /** [n] */
  x: View;
  /** [n] out, or in and out with `add` */
  y: View;
  n: number;
  /** Probability that a value becomes 0, in [0, 1). */
  p: number;
  /** Random key of the mask; backward needs the same key. */
  key: readonly [number, number];
  /** True for y += instead of y =. */
  add?: boolean;
}

/** Records inverted dropout of the first n values. The backward pass is the same call with the gradient as x. */
export function dropout(gpu: Gpu, { x, y, n, p, key, add = false }: DropoutArgs): void {
  expectElements('dropout x [n]', x, n);
  expectElements('dropout y [n]', y, n);
  const params = { n, key0: key[0] >>> 0, key1: key[1] >>> 0, threshold: Math.floor(p * 2 ** 32), scale: 1 / (1 - p) };
  gpu.dispatch(dropoutKernel, { x, y }, params, groupsOf(n), OVERRIDES[add ? 1 : 0]);
}
const OVERRIDES = [{ ADD: 0 }, { ADD: 1 }];
