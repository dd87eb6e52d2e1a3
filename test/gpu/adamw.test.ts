import { test } from 'vitest';
import { adamw, gradClip, gradNorm, NORM_SLOTS } from '../../src/gpu/ops/adamw.ts';
import type { OptimizerOptions } from '../../src/model/engine.ts';
import { newAdamWState, referenceAdamW } from '../../src/extensions/verify/reference/model.ts';
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

/** Runs steps with the given gradients, each from gradient norm to update. Compares weights, moments and norms to float64. */
async function check(
  w: Float32Array,
  gradients: Float32Array[],
  options: OptimizerOptions,
  fold = false,
): Promise<void> {
  const n = w.length;
  const { gradClip: maxNorm, ...rest } = options;
  const weights = new Map([['w', f64(w)]]);
  const state = newAdamWState(weights);
  await withGpu(async (gpu) => {
    const zeros = () => withRoom(gpu, 'moment', new Float32Array(n));
    const views = { w: withRoom(gpu, 'w', w), g: withRoom(gpu, 'g', gradients[0]), m: zeros(), v: zeros() };
    const [partial, clip] = [poisoned(gpu, 'partial', NORM_SLOTS), poisoned(gpu, 'clip', 3)];
    for (const [step, gradient] of gradients.entries()) {
      if (step > 0) gpu.write(views.g, gradient);
      gradNorm(gpu, { g: views.g, partial, n, slot: 0 });
      gradClip(gpu, { partial, clip, slots: NORM_SLOTS, maxNorm });
      adamw(fold ? oneThreadGroups(gpu) : gpu, { clip, ...views, n, t: step + 1, ...rest });
      const norm = referenceAdamW(weights, new Map([['w', f64(gradient)]]), state, options);
      expectWithin((await gpu.readF32(clip)).slice(0, 1), [norm], () => (n / NORM_SLOTS + 300) * U * norm);
      expectSame(await readRoomy(gpu, views.g, n), new Float32Array(n)); // cleared for the next step
    }
    const [m, v] = [state.expAvg.get('w')!, state.expAvgSq.get('w')!];
    const steps = gradients.length;
    // Rounding errors: a clipping scale has the error of the norm, and is exact without clipping. beta and 1 - beta have an error of U per
    // step.
    const scale = maxNorm > 0 ? (n / NORM_SLOTS + 300) * U : 0;
    const errorM = scale + 8 * steps * U;
    const errorV = 2 * errorM;
    const largest = gradients.reduce((max, g) => Math.max(max, ...g.subarray(0, 5000).map(Math.abs)), 0);
    const update = steps * options.lr * 4; // total change of a weight: no step is longer than a few lr
    expectWithin(await readRoomy(gpu, views.m, n), m, (i) => errorM * (Math.abs(m[i]) + largest));
    expectWithin(await readRoomy(gpu, views.v, n), v, (i) => errorV * v[i] + 1e-36);
    const want = weights.get('w')!;
    expectWithin(
      await readRoomy(gpu, views.w, n),
      want,
      (i) => 3 * steps * U * Math.abs(w[i]) + update * (errorM + errorV + 20 * U),
    );
  });
}

test.each([
  { n: 1, maxNorm: 1 },
  { n: 63, maxNorm: 0 },
  { n: 64, maxNorm: 1e9 },
  { n: 65, maxNorm: 0.1 },
  { n: 1031, maxNorm: 1 },
])('three steps of n=$n weights, clipped at $maxNorm', async ({ n, maxNorm }) => {
  const r = rng(n);
  const gradients = [r.normals(n, 2), r.normals(n, 0.01), r.normals(n, 5)];
  await check(r.normals(n), gradients, { ...OPTIONS, gradClip: maxNorm });
});

test('no decay, torch defaults for the betas, a large eps', async () => {
  const r = rng(2);
  const gradients = [r.normals(131), r.normals(131), r.normals(131)];
  await check(r.normals(131), gradients, { ...OPTIONS, beta2: 0.999, eps: 0.1, weightDecay: 0, gradClip: 0 });
});

test('decay alone shrinks weights whose gradient is zero', async () => {
  const w = rng(3).normals(67);
  await check(w, [new Float32Array(67), new Float32Array(67)], OPTIONS);
});

test('a grid folded over both dimensions', async () => {
  const n = 4 * FOLD_THREADS;
  await check(pattern(n), [pattern(n, 31), pattern(n, 17)], OPTIONS, true);
});

test.each([NaN, Infinity, 3e38])('a gradient with %d changes no weight or moment and is cleared', (bad) =>
  withGpu(async (gpu) => {
    const n = 131;
    const r = rng(4);
    const [w, m, v, g] = [r.normals(n), r.normals(n), r.normals(n).map(Math.abs), r.normals(n)];
    g[77] = bad;
    const views = { w: gpu.buffer('w', w), g: gpu.buffer('g', g), m: gpu.buffer('m', m), v: gpu.buffer('v', v) };
    const [partial, clip] = [poisoned(gpu, 'partial', NORM_SLOTS), poisoned(gpu, 'clip', 3)];
    gradNorm(gpu, { g: views.g, partial, n, slot: 0 });
    gradClip(gpu, { partial, clip, slots: NORM_SLOTS, maxNorm: 1 });
    const { lr, beta1, beta2, eps, weightDecay } = OPTIONS;
    adamw(gpu, { clip, ...views, n, t: 1, lr, beta1, beta2, eps, weightDecay });
    expectSame(await gpu.readF32(views.w), w);
    expectSame(await gpu.readF32(views.m), m);
    expectSame(await gpu.readF32(views.v), v);
    expectSame(await gpu.readF32(views.g), new Float32Array(n));
  }),
);
