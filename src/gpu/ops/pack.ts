/** Packs weights into fewer bits when a model is loaded. */

import code from '../../../kernels/pack.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { PACKED_BLOCK, PACKED_FORMATS, packedBytes, type PackedFormat } from '../packedFormat.ts';
import { expectElements } from '../view.ts';
import { groupsOf } from './grid.ts';

const packKernel = defineKernel({
  name: 'pack',
  code,
  read: ['x'],
  write: ['words'],
  params: { n: 'u32' },
});

/** Records the packing of x [n] in a format into `packed` [packedBytes]. */
export function pack(gpu: Gpu, args: { x: View; packed: View; n: number; format: PackedFormat }): void {
  const { x, packed, n, format } = args;
  expectElements('pack x [n]', x, n);
  expectElements('pack packed [words]', packed, packedBytes(format, n) / 4);
  gpu.dispatch(packKernel, { x, words: packed }, { n }, groupsOf(Math.ceil(n / PACKED_BLOCK)), {
    FORMAT: PACKED_FORMATS.indexOf(format),
  });
}
