/** SGD, SignSGD and Muon in float64, following PyTorch and prime-rl, over weights in Hugging Face's layout. */

import type { OptimizerOptions } from '../../src/model/engine.ts';
import type { OptimizerSpec } from '../../src/model/optimizer/spec.ts';
import { newAdamWState, referenceAdamW } from '../../src/extensions/verify/reference/model.ts';

type Weights64 = Map<string, Float64Array>;

export interface ReferenceState {
  adamw: ReturnType<typeof newAdamWState>;
  buffers: Map<string, Float64Array>;
}

/** Returns the optimizer state before the first update. */
export const newState = (weights: Weights64): ReferenceState => ({ adamw: newAdamWState(weights), buffers: new Map() });

/**
 * Runs one step in place, after `torch.nn.utils.clip_grad_norm_`; returns the norm before clipping.
 * @param shapes [out, in] of the tensors that Muon orthogonalizes; AdamW updates the others
 */
export function referenceStep(
  spec: OptimizerSpec,
  weights: Weights64,
  gradients: Weights64,
  state: ReferenceState,
  options: OptimizerOptions,
  shapes: ReadonlyMap<string, readonly number[]> = new Map(),
): number {
  if (spec.name === 'AdamW') return referenceAdamW(weights, gradients, state.adamw, options);
  const norm = Math.sqrt([...gradients.values()].reduce((sum, g) => sum + g.reduce((a, x) => a + x * x, 0), 0));
  const scale = options.gradClip > 0 ? Math.min(1, options.gradClip / (norm + 1e-6)) : 1;
  const { lr, weightDecay } = options;
  const clipped = new Map(Array.from(gradients, ([name, g]) => [name, g.map((x) => x * scale)]));
  if (spec.name === 'Muon') {
    const rest = (all: Weights64) => new Map([...all].filter(([name]) => !shapes.has(name)));
    if (rest(weights).size > 0) referenceAdamW(rest(weights), rest(clipped), state.adamw, { ...options, gradClip: 0 });
  }
  for (const [name, w] of weights) {
    const g = clipped.get(name)!;
    if (spec.name === 'SignSGD') w.forEach((x, i) => (w[i] = x * (1 - lr * weightDecay) - lr * Math.sign(g[i])));
    else if (spec.name === 'SGD') {
      const d = g.map((x, i) => x + weightDecay * w[i]);
      const b = bufferOf(state, name, d.length).map((x, i) => spec.momentum * x + d[i]);
      state.buffers.set(name, b);
      const step = spec.nesterov ? d.map((x, i) => x + spec.momentum * b[i]) : b;
      w.forEach((x, i) => (w[i] = x - lr * step[i]));
    } else if (spec.name === 'Muon' && shapes.has(name)) {
      const [rows, cols] = shapes.get(name)!;
      const mu = spec.momentum;
      const b = bufferOf(state, name, g.length).map((x, i) => x + (1 - mu) * (g[i] - x));
      state.buffers.set(name, b);
      const update = orthogonalized(spec.nesterov ? g.map((x, i) => x + mu * (b[i] - x)) : b, rows, cols);
      const adjusted =
        spec.adjustLrFn === 'original' ? Math.sqrt(Math.max(1, rows / cols)) : 0.2 * Math.sqrt(Math.max(rows, cols));
      w.forEach((x, i) => (w[i] = x * (1 - lr * weightDecay) - lr * adjusted * update[i]));
    }
  }
  return norm;
}

const bufferOf = ({ buffers }: ReferenceState, name: string, n: number) => buffers.get(name) ?? new Float64Array(n);

/**
 * Newton-Schulz, five steps of Keller Jordan's quintic: X = a X + (b A + c A A) X with A = X X^T. A tall X is
 * transposed first.
 */
export function orthogonalized(x: Float64Array, rows: number, cols: number): Float64Array {
  if (rows > cols) return transposed(orthogonalized(transposed(x, rows, cols), cols, rows), cols, rows);
  const norm = Math.max(Math.sqrt(x.reduce((sum, v) => sum + v * v, 0)), 1e-7);
  let X: Float64Array = x.map((v) => v / norm);
  for (let step = 0; step < 5; step++) {
    const A = product(X, transposed(X, rows, cols), rows, cols, rows);
    const AA = product(A, A, rows, rows, rows);
    const B = A.map((v, i) => -4.775 * v + 2.0315 * AA[i]);
    const BX = product(B, X, rows, rows, cols);
    X = X.map((v, i) => 3.4445 * v + BX[i]);
  }
  return X;
}

function transposed(x: Float64Array, rows: number, cols: number): Float64Array {
  return x.map((_, i) => x[(i % rows) * cols + Math.floor(i / rows)]);
}

/** Returns the product of [M, K] and [K, N]. */
function product(a: Float64Array, b: Float64Array, M: number, K: number, N: number): Float64Array {
  const y = new Float64Array(M * N);
  for (let i = 0; i < M; i++)
    for (let k = 0; k < K; k++) for (let j = 0; j < N; j++) y[i * N + j] += a[i * K + k] * b[k * N + j];
  return y;
}
