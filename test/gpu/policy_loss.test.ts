/** Compares policy_loss.wgsl to the float64 losses of src/grpo, on rows that reach every branch. */
import { expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { entrySamples, packPolicyRows, policyLoss, type PolicyRows } from '../../src/gpu/ops/policy_loss.ts';
import { KL_TYPES } from '../../src/grpo/losses/kl.ts';
import { computePolicyLoss, POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import type { PolicyLossSpec } from '../../src/model/engine.ts';
import { RECIPE_OF_LOSS } from '../../src/extensions/verify/kernels.ts';
import { expectClose } from '../close.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { poisoned, withGpu } from './gpu.ts';

/** Sample lengths: zero, one, odd, across workgroups. */
const LENGTHS = [1, 7, 0, 64, 130, 3];
const SEQ_START = LENGTHS.reduce((starts, n) => [...starts, starts[starts.length - 1] + n], [0]);
const E = SEQ_START[LENGTHS.length];

type AllRows = Record<keyof PolicyRows, Float32Array>;

/** Returns random rows. `drift` scales log ratios; with `extremes`, every 17th ratio is far outside of the clip range. */
function randomRows(seed: number, drift: number, extremes: boolean): { logp: Float32Array; rows: AllRows } {
  const random = rng(seed);
  const logp = random.normals(E).map((x) => -0.01 - Math.abs(x));
  const oldLogProbs = logp.map((x, e) =>
    Math.min(x - drift * random.normals(1)[0] - (extremes && e % 17 === 0 ? 25 : 0), -1e-3),
  );
  const advantages = random.normals(E);
  SEQ_START.slice(0, -1).forEach((start, s) =>
    advantages.fill(s === 1 ? 0 : advantages[start], start, SEQ_START[s + 1]),
  );
  const weights = random.normals(E).map((x) => 0.5 + Math.abs(x));
  const rows = {
    oldLogProbs,
    advantages,
    weights,
    refLogProbs: logp.map((x) => x + random.normals(1)[0]),
    klWeights: random.normals(E).map(Math.abs),
    mask: Float32Array.from({ length: E }, (_, e) => (e % 5 === 3 ? 0 : 1)),
    selected: Float32Array.from({ length: E }, (_, e) => (e % 11 === 2 ? 1 : 0)),
  };
  return { logp, rows };
}

async function onGpu(gpu: Gpu, spec: PolicyLossSpec, logp: Float32Array, rows: PolicyRows): Promise<Float32Array> {
  const dLogp = poisoned(gpu, 'dLogp', E);
  policyLoss(gpu, {
    loss: spec,
    kl: { type: spec.klLossType, coef: spec.klLossCoef, clamp: spec.klClamp },
    logp: gpu.buffer('logp', logp),
    inputs: gpu.buffer('inputs', packPolicyRows(rows)),
    entrySample: gpu.buffer('entrySample', entrySamples(SEQ_START)),
    seqStart: gpu.buffer('seqStart', Uint32Array.from(SEQ_START)),
    stats: poisoned(gpu, 'stats', LENGTHS.length * 4),
    dLogp,
    E,
    S: LENGTHS.length,
  });
  return gpu.readF32(dLogp);
}

function inFloat64(spec: PolicyLossSpec, logp: Float32Array, rows: AllRows): Float64Array {
  const { oldLogProbs: oldLogp, refLogProbs: refLogp, ...rest } = rows;
  return computePolicyLoss(spec, { logp, oldLogp, refLogp, ...rest, seqStart: SEQ_START }).grad;
}

/**
 * Rounding: exp() in WGSL has an error of up to (3 + 2 |x|) ulp, with x up to 20. The ratio also has the rounding error of logp - oldLogp.
 */
const RTOL = 2e-5;

test.each(Object.keys(POLICY_LOSSES))('%s', async (lossMode) => {
  await withGpu(async (gpu) => {
    const spec: PolicyLossSpec = { ...recipeSpec(RECIPE_OF_LOSS[lossMode] ?? lossMode), klClamp: Infinity };
    for (const [seed, drift, extremes] of [
      [1, 0.001, false],
      [2, 0.3, false],
      [3, 2, true],
    ] as const) {
      const { logp, rows } = randomRows(seed, drift, extremes);
      expectClose(await onGpu(gpu, spec, logp, rows), inFloat64(spec, logp, rows), { rtol: RTOL, atol: 1e-6 });
    }
  });
});

test.each(Object.keys(POLICY_LOSSES))(
  '%s of tokens without advantage is exactly 0 where it says so',
  async (lossMode) => {
    await withGpu(async (gpu) => {
      const spec: PolicyLossSpec = { ...recipeSpec(RECIPE_OF_LOSS[lossMode] ?? lossMode), klLossCoef: 0 };
      const { logp, rows } = randomRows(6, 2, true);
      const grads = await onGpu(gpu, spec, logp, { ...rows, advantages: new Float32Array(E) });
      expect(grads.every((g) => g === 0)).toBe(POLICY_LOSSES[lossMode].zeroAtZeroAdvantage ?? false);
    });
  },
);

test.each([...KL_TYPES])('KL %s in the loss, with its own weights', async (klLossType) => {
  await withGpu(async (gpu) => {
    for (const klClamp of [Infinity, 0.5]) {
      const spec = { ...recipeSpec('grpo', { klLossType, klLossCoef: 0.3 }), ...(klClamp < 1 ? { klClamp } : {}) };
      const { logp, rows } = randomRows(4, 0.3, false);
      expectClose(await onGpu(gpu, spec, logp, rows), inFloat64(spec, logp, rows), { rtol: RTOL, atol: 1e-6 });
    }
  });
});

test.each([
  ['none', 'token'],
  ['token', 'sequence'],
  ['sequence', 'none'],
])('reinforce with rolloutIs %s is not the one with %s', async (rolloutIs, other) => {
  await withGpu(async (gpu) => {
    const { logp, rows } = randomRows(5, 0.3, false);
    const of = (level: string) => recipeSpec('reinforce', { rolloutIs: level, rolloutIsThreshold: 1.5 });
    const got = await onGpu(gpu, of(rolloutIs), logp, rows);
    expectClose(got, inFloat64(of(rolloutIs), logp, rows), { rtol: RTOL, atol: 1e-6 });
    expect(() => expectClose(got, inFloat64(of(other), logp, rows), { rtol: RTOL, atol: 1e-6 })).toThrow();
  });
});

test.each([
  ['grpo', { clipRatioC: 1e12, clipRatioHigh: 1e12 }], // beyond 20 the gradient is 0, up to it exp(20)
  ['gspo', { clipRatioHigh: 1e12 }], // beyond a mean of 10 it is 0
  ['sapo', {}],
  ['cispo', { wMax: 1e12 }],
])('%s with clips out of the way: what is left at extreme ratios', async (algorithm, overrides) => {
  await withGpu(async (gpu) => {
    const spec = recipeSpec(algorithm, overrides);
    const { logp, rows } = randomRows(6, 0.1, false);
    const drift = [0, 25, 0, 9.5, 10.5, 19.5];
    SEQ_START.slice(0, -1).forEach((start, s) => {
      for (let e = start; e < SEQ_START[s + 1]; e++) rows.oldLogProbs[e] = logp[e] - drift[s];
      rows.advantages.fill(s % 2 === 0 ? -1 : -0.5, start, SEQ_START[s + 1]);
    });
    const want = inFloat64(spec, logp, rows);
    expectClose(await onGpu(gpu, spec, logp, rows), want, { rtol: 1e-4, atol: 1e-6 });
  });
});

test('gmpo with advantages that differ within a sequence uses their mean', async () => {
  await withGpu(async (gpu) => {
    const spec = recipeSpec('gmpo');
    const { logp, rows } = randomRows(8, 0.3, false);
    rows.advantages.set(rng(9).normals(E));
    expectClose(await onGpu(gpu, spec, logp, rows), inFloat64(spec, logp, rows), { rtol: RTOL, atol: 1e-6 });
  });
});
