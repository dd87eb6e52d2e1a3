import code from '../../../kernels/cast.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const castKernel = defineKernel({
  name: 'cast',
  code,
  read: ['x'],
  write: ['y'],
  params: { n: 'u32', atX: 'u32', atY: 'u32' },
});

interface CastArgs {
  x: View;
  /** out */
  y: View;
  n: number;
  /** First element of x and of y. Default: 0. */
  atX?: number;
  atY?: number;
}

/** Records y[atY + i] = x[atX + i] for n values, converting between float types. */
export function cast(gpu: Gpu, { x, y, n, atX = 0, atY = 0 }: CastArgs): void {
  expectElements('cast x [atX + n]', x, atX + n);
  expectElements('cast y [atY + n]', y, atY + n);
  gpu.dispatch(castKernel, { x, y }, { n, atX, atY }, groupsOf(n));
}
