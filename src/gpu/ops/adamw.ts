import code from '../../../kernels/adamw.wgsl?raw';
import codeClip from '../../../kernels/grad_clip.wgsl?raw';
import codeNorm from '../../../kernels/grad_norm.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { groupsOf } from './grid.ts';

const gradNormKernel = defineKernel({
  name: 'grad_norm',
  code: codeNorm,
  read: ['g'],
  write: ['partial'],
  params: { n: 'u32', slot: 'u32' },
});

const gradClipKernel = defineKernel({
  name: 'grad_clip',
  code: codeClip,
  read: ['partial'],
  write: ['clip'],
  params: { slots: 'u32', maxNorm: 'f32' },
});

const adamwKernel = defineKernel({
  name: 'adamw',
  code,
  read: ['clip'],
  write: ['w', 'g', 'm', 'v'],
  params: {
    n: 'u32',
    lr: 'f32',
    beta1: 'f32',
    beta2: 'f32',
    rest1: 'f32',
    rest2: 'f32',
    eps: 'f32',
    weightDecay: 'f32',
    correction1: 'f32',
    correction2: 'f32',
  },
});

/** Number of sums of grad_norm.wgsl, and so of the slots of `partial` that one arena uses. */
export const NORM_SLOTS = 256;
/** Threads per sum on hardware: enough in total to hide the latency of loads. One is fastest on a software adapter. */
const HARDWARE = { WG: 256, LANES: 256 };
const SOFTWARE = { WG: 64, LANES: 1 };

/** Records partial[slot ..] = partial sums of the squares of g [n]. */
export function gradNorm(gpu: Gpu, { g, partial, n, slot }: { g: View; partial: View; n: number; slot: number }): void {
  const grid = gpu.adapter.isSoftware ? SOFTWARE : HARDWARE;
  gpu.dispatch(gradNormKernel, { g, partial }, { n, slot }, (NORM_SLOTS * grid.LANES) / grid.WG, grid);
}

/** Records clip = (norm, scale, ok). partial [slots]. */
export function gradClip(gpu: Gpu, args: { partial: View; clip: View; slots: number; maxNorm: number }): void {
  const { partial, clip, slots, maxNorm } = args;
  gpu.dispatch(gradClipKernel, { partial, clip }, { slots, maxNorm }, 1);
}

interface AdamwArgs {
  /** [3] */
  clip: View;
  /** w, g, m and v: [n] each; g is cleared */
  w: View;
  g: View;
  m: View;
  v: View;
  n: number;
  lr: number;
  beta1: number;
  beta2: number;
  eps: number;
  weightDecay: number;
  /** Number of updates, this one included: 1, 2, ... */
  t: number;
}

/** Records one AdamW update of an arena. */
export function adamw(gpu: Gpu, { clip, w, g, m, v, n, t, ...options }: AdamwArgs): void {
  const { lr, beta1, beta2, eps, weightDecay } = options;
  const correction1 = 1 - beta1 ** t;
  const correction2 = Math.sqrt(1 - beta2 ** t);
  const [rest1, rest2] = [1 - beta1, 1 - beta2];
  const params = { n, lr, beta1, beta2, rest1, rest2, eps, weightDecay, correction1, correction2 };
  gpu.dispatch(adamwKernel, { clip, w, g, m, v }, params, groupsOf(Math.ceil(n / 4)));
}
