import code from '../../../kernels/sgd.wgsl?raw';
import codeMomentum from '../../../kernels/momentum.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { groupsOf } from './grid.ts';

const sgdKernel = defineKernel({
  name: 'sgd',
  code,
  read: ['clip'],
  write: ['w', 'g'],
  params: { n: 'u32', isUpdate: 'u32', sign: 'u32', lr: 'f32', decay: 'f32', l2: 'f32' },
});

const momentumKernel = defineKernel({
  name: 'momentum',
  code: codeMomentum,
  read: ['clip', 'w'],
  write: ['g', 'm'],
  params: { n: 'u32', mu: 'f32', rest: 'f32', direct: 'f32', again: 'f32', l2: 'f32' },
});

interface SgdArgs {
  /** [3] */
  clip: View;
  /** w and g: [n] each; g is cleared */
  w: View;
  g: View;
  n: number;
  lr: number;
  /** Decoupled weight decay. */
  decay?: number;
  /** Weight decay added to the gradient, like torch.optim.SGD. */
  l2?: number;
  /** True to use only the sign of the gradient. */
  sign?: boolean;
  /** True if g is an update instead of a gradient, so that it is not scaled by the clip. */
  isUpdate?: boolean;
}

/** Records w = w (1 - lr decay) - lr d, where d is the gradient (+ l2 w), its sign, or a finished update. */
export function sgd(gpu: Gpu, { clip, w, g, n, lr, decay = 0, l2 = 0, sign = false, isUpdate = false }: SgdArgs): void {
  const params = { n, lr, decay, l2, sign: sign ? 1 : 0, isUpdate: isUpdate ? 1 : 0 };
  gpu.dispatch(sgdKernel, { clip, w, g }, params, groupsOf(n));
}

interface MomentumArgs {
  /** [3] */
  clip: View;
  /** w, g and m: [n] each; g becomes the update */
  w: View;
  g: View;
  m: View;
  n: number;
  mu: number;
  /** Weight of the gradient in m. */
  rest: number;
  nesterov: boolean;
  l2?: number;
}

/** Records m = mu m + rest d and g = m, or with Nesterov g = rest d + mu m, where d is the scaled gradient + l2 w. */
export function momentum(gpu: Gpu, { clip, w, g, m, n, mu, rest, nesterov, l2 = 0 }: MomentumArgs): void {
  const [direct, again] = nesterov ? [rest, mu] : [0, 1];
  gpu.dispatch(momentumKernel, { clip, w, g, m }, { n, mu, rest, direct, again, l2 }, groupsOf(n));
}
