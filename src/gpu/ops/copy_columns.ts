import code from '../../../kernels/copy_columns.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const copyColumnsKernel = defineKernel({
  name: 'copy_columns',
  code,
  read: ['x'],
  write: ['y'],
  params: { R: 'u32', C: 'u32', firstX: 'u32', rowX: 'u32', firstY: 'u32', rowY: 'u32' },
});

interface CopyColumnsArgs {
  /** [R, rowX] */
  x: View;
  /** [R, rowY] out */
  y: View;
  R: number;
  /** Columns to copy. */
  C: number;
  firstX: number;
  rowX: number;
  firstY: number;
  rowY: number;
}

/** Records y[r, firstY + c] = x[r, firstX + c] for c < C. */
export function copyColumns(gpu: Gpu, { x, y, ...sizes }: CopyColumnsArgs): void {
  const { R, C, rowX, rowY } = sizes;
  expectElements('copy_columns x [R, rowX]', x, R * rowX);
  expectElements('copy_columns y [R, rowY]', y, R * rowY);
  gpu.dispatch(copyColumnsKernel, { x, y }, sizes, groupsOf(R * C));
}
