import code from '../../../kernels/gather_rows.wgsl?raw';
import codeScatter from '../../../kernels/scatter_rows.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const gatherRowsKernel = defineKernel({
  name: 'gather_rows',
  code,
  read: ['x', 'rows'],
  write: ['y'],
  params: { R: 'u32', C: 'u32' },
});

const scatterRowsKernel = defineKernel({
  name: 'scatter_rows',
  code: codeScatter,
  read: ['y', 'rows'],
  write: ['x'],
  params: { R: 'u32', C: 'u32' },
});

interface RowsArgs {
  /** [N, C] */
  x: View;
  /** [R], below N */
  rows: View;
  /** [R, C] */
  y: View;
  R: number;
  C: number;
}

/** Records y[r] = x[rows[r]]. */
export function gatherRows(gpu: Gpu, { x, rows, y, R, C }: RowsArgs): void {
  expectElements('gather_rows y [R, C]', y, R * C);
  gpu.dispatch(gatherRowsKernel, { x, rows, y }, { R, C }, groupsOf(R * C));
}

/** Records x[rows[r]] = y[r]; the rows must be distinct. */
export function scatterRows(gpu: Gpu, { x, rows, y, R, C }: RowsArgs): void {
  expectElements('scatter_rows y [R, C]', y, R * C);
  gpu.dispatch(scatterRowsKernel, { y, rows, x }, { R, C }, groupsOf(R * C));
}
