import { test } from 'vitest';
import { gradClip, gradNorm, NORM_SLOTS } from '../../src/gpu/ops/adamw.ts';
import { momentum, sgd } from '../../src/gpu/ops/sgd.ts';
import type { OptimizerOptions } from '../../src/model/engine.ts';
import type { OptimizerSpec } from '../../src/model/optimizer/spec.ts';
import { newState, referenceStep } from './referenceOptimizers.ts';
import { rng } from '../random.ts';
import {
  expectSame,
  expectWithin,
  f64,
  FOLD_THREADS,
  oneThreadGroups,
  pattern,
  readRoomy,
  U,
  withRoom,
} from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

const OPTIONS: OptimizerOptions = { lr: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.1, gradClip: 1 };

const SPECS: OptimizerSpec[] = [
  { name: 'SGD', momentum: 0, nesterov: false },
  { name: 'SGD', momentum: 0.9, nesterov: false },
  { name: 'SGD', momentum: 0.9, nesterov: true },
  { name: 'SignSGD' },
];
const titleOf = (spec: OptimizerSpec) => JSON.stringify(spec);

/** Runs three steps for a vector, with the kernels that the optimizer `spec` uses for vectors. */
async function checkVector(n: number, spec: OptimizerSpec, gradients: Float32Array[], fold = false): Promise<void> {
  const w = fold ? pattern(n, 13) : rng(n).normals(n);
  const weights = new Map([['w', f64(w)]]);
  const state = newState(weights);
  await withGpu(async (gpu) => {
    const zeros = withRoom(gpu, 'm', new Float32Array(n));
    const views = { w: withRoom(gpu, 'w', w), g: withRoom(gpu, 'g', gradients[0]) };
    const [partial, clip] = [poisoned(gpu, 'partial', NORM_SLOTS), poisoned(gpu, 'clip', 3)];
    const on = fold ? oneThreadGroups(gpu) : gpu;
    const { lr, weightDecay } = OPTIONS;
    for (const [i, gradient] of gradients.entries()) {
      if (i > 0) gpu.write(views.g, gradient);
      gradNorm(gpu, { g: views.g, partial, n, slot: 0 });
      gradClip(gpu, { partial, clip, slots: NORM_SLOTS, maxNorm: OPTIONS.gradClip });
      if (spec.name === 'SGD' && spec.momentum > 0) {
        const { momentum: mu, nesterov } = spec;
        momentum(on, { clip, ...views, m: zeros, n, mu, rest: 1, nesterov, l2: weightDecay });
        sgd(on, { clip, ...views, n, lr, isUpdate: true });
      } else if (spec.name === 'SGD') sgd(on, { clip, ...views, n, lr, l2: weightDecay });
      else sgd(on, { clip, ...views, n, lr, sign: true, decay: weightDecay });
      referenceStep(spec, weights, new Map([['w', f64(gradient)]]), state, OPTIONS);
      expectSame(await readRoomy(gpu, views.g, n), new Float32Array(n)); // cleared for the next step
    }
    const want = weights.get('w')!;
    const scale = (n / NORM_SLOTS + 300) * U; // of the norm
    expectWithin(await readRoomy(gpu, views.w, n), want, (i) => 12 * U * (Math.abs(w[i]) + 0.1) + 0.1 * scale);
    if (spec.name === 'SGD' && spec.momentum > 0)
      expectWithin(await readRoomy(gpu, zeros, n), state.buffers.get('w')!, () => 4 * scale);
  });
}

test.each([1, 63, 64, 65, 1031].flatMap((n) => SPECS.map((spec) => ({ n, spec, title: titleOf(spec) }))))(
  '$title: three steps of $n weights',
  async ({ n, spec }) => {
    const r = rng(n + 1);
    const gradients = [r.normals(n, 2), r.normals(n, 0.01), r.normals(n, 5)];
    if (n > 1) gradients[1][0] = 0; // its sign is 0
    await checkVector(n, spec, gradients);
  },
);

test('a grid folded over both dimensions', async () => {
  for (const spec of [SPECS[2], SPECS[3]]) await checkVector(FOLD_THREADS, spec, [pattern(FOLD_THREADS, 31)], true);
});

test.each([NaN, Infinity])('a gradient with %d changes no weight or momentum and is cleared', (bad) =>
  withGpu(async (gpu) => {
    const n = 131;
    const r = rng(4);
    const [w, m, g] = [r.normals(n), r.normals(n), r.normals(n)];
    g[77] = bad;
    const views = { w: gpu.buffer('w', w), g: gpu.buffer('g', g) };
    const [partial, clip, buffer] = [
      poisoned(gpu, 'partial', NORM_SLOTS),
      poisoned(gpu, 'clip', 3),
      gpu.buffer('m', m),
    ];
    gradNorm(gpu, { g: views.g, partial, n, slot: 0 });
    gradClip(gpu, { partial, clip, slots: NORM_SLOTS, maxNorm: 1 });
    momentum(gpu, { clip, ...views, m: buffer, n, mu: 0.9, rest: 1, nesterov: true, l2: 0.1 });
    sgd(gpu, { clip, ...views, n, lr: 0.1, decay: 0.1, isUpdate: true });
    expectSame(await gpu.readF32(views.w), w);
    expectSame(await gpu.readF32(buffer), m);
    expectSame(await gpu.readF32(views.g), new Float32Array(n));
  }),
);
