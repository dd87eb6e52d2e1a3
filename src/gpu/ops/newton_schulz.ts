import code from '../../../kernels/newton_schulz.wgsl?raw';
import codeNormalize from '../../../kernels/normalize.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { gradNorm } from './adamw.ts';
import { groupsOf } from './grid.ts';
import { matmulNn, matmulNt, matmulTn } from './matmul.ts';

const normalizeKernel = defineKernel({
  name: 'normalize',
  code: codeNormalize,
  read: ['partial'],
  write: ['x'],
  params: { n: 'u32', eps: 'f32' },
});

const newtonSchulzKernel = defineKernel({
  name: 'newton_schulz',
  code,
  read: ['gram'],
  write: ['y'],
  params: { d: 'u32', a: 'f32', b: 'f32', c: 'f32' },
});

/** Coefficients of Keller Jordan's quintic polynomial. Five steps move singular values to about 1 (0.7 to 1.2). */
const [A, B, C] = [3.4445, -4.775, 2.0315];
const STEPS = 5;
/** Lower bound of the norm, same as in torch.optim.Muon. If the norm is smaller, the update shrinks. */
const EPS = 1e-7;

interface NewtonSchulzArgs {
  /** [rows, cols] in: any matrix; scratch afterwards */
  x: View;
  /** [rows, cols] out */
  y: View;
  /** [d, d] scratch for the Gram matrix, and the same for its square; d = min(rows, cols) */
  gram: View;
  square: View;
  /** [NORM_SLOTS] scratch */
  partial: View;
  rows: number;
  cols: number;
  /** Factor of the result. */
  scale: number;
}

/**
 * Records y = scale * (the nearly orthogonal matrix with x's singular vectors). Uses products of the smaller Gram matrix: x x^T if x is
 * wide, x^T x if x is tall.
 */
export function newtonSchulz(gpu: Gpu, args: NewtonSchulzArgs): void {
  const { gram, square, partial, rows, cols, scale } = args;
  const d = Math.min(rows, cols);
  gradNorm(gpu, { g: args.x, partial, n: rows * cols, slot: 0 });
  gpu.dispatch(normalizeKernel, { partial, x: args.x }, { n: rows * cols, eps: EPS }, groupsOf(rows * cols));
  let [x, y] = [args.x, args.y];
  for (let step = 1; step <= STEPS; step++) {
    if (rows <= cols) matmulNt(gpu, { x, b: x, y: gram, M: d, N: d, K: cols });
    else matmulTn(gpu, { a: x, b: x, y: gram, M: d, N: d, K: rows, accumulate: false });
    matmulNn(gpu, { x: gram, b: gram, y: square, M: d, N: d, K: d });
    const [a, b, c] = [A, B, C].map((coefficient) => coefficient * (step === STEPS ? scale : 1));
    gpu.dispatch(newtonSchulzKernel, { gram, y: square }, { d, a, b, c }, groupsOf(d * d));
    if (rows <= cols) matmulNn(gpu, { x: square, b: x, y, M: rows, N: cols, K: d });
    else matmulNn(gpu, { x, b: square, y, M: rows, N: cols, K: d });
    [x, y] = [y, x]; // after an odd number of steps the result is in args.y
  }
}
