import code from '../../../kernels/mask_logits.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../view.ts';
import { rowThreads } from './grid.ts';

const maskLogitsKernel = defineKernel({
  name: 'mask_logits',
  code,
  read: ['entries', 'masks'],
  write: ['adjusted'],
  params: { n: 'u32', V: 'u32' },
});

/** Number of words in the mask of one slot. */
export const maskWords = (V: number): number => Math.ceil(V / 32);

interface MaskLogitsArgs {
  /** [n, 4] */
  entries: View;
  /** [slots, maskWords(V)] */
  masks: View;
  /** [n, V] in and out */
  adjusted: View;
  n: number;
  V: number;
}

/** Records the masking of logits: tokens outside the mask of their slot cannot be sampled. Layouts: kernels/mask_logits.wgsl. */
export function maskLogits(gpu: Gpu, { entries, masks, adjusted, n, V }: MaskLogitsArgs): void {
  expectElements('mask_logits entries [n, 4]', entries, n * 4);
  expectElements('mask_logits adjusted [n, V]', adjusted, n * V);
  gpu.dispatch(maskLogitsKernel, { entries, masks, adjusted }, { n, V }, n, rowThreads(gpu));
}
