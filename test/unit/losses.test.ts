import { describe, expect, test } from 'vitest';
import { LOSS_AGG_MODES, lossWeights } from '../../src/grpo/losses/aggregate.ts';
import { computePolicyLoss, type LossRows, POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import type { PolicyLossSpec } from '../../src/model/engine.ts';
import { RECIPE_OF_LOSS } from '../../src/extensions/verify/kernels.ts';
import { rng } from '../random.ts';
import { recipeSpec } from '../recipeSpec.ts';

const MODES = Object.keys(POLICY_LOSSES);
const specOf = (lossMode: string, more = {}): PolicyLossSpec => recipeSpec(RECIPE_OF_LOSS[lossMode] ?? lossMode, more);

/** Lengths of the samples. Every third token is not trained on, and neither is any token of one sample. */
const LENGTHS = [5, 1, 8, 4, 3, 7, 2];
const MASKS = LENGTHS.map((n, s) => Array.from({ length: n }, (_, t) => (s === 4 || t % 3 === 2 ? 0 : 1)));

interface Sample {
  logp: number[];
  oldLogp: number[];
  advantages: number[];
  refLogp: number[];
}

/** Returns samples whose tokens all have the same advantage, as with outcome rewards. */
function randomSamples(seed: number, drift: number): Sample[] {
  const random = rng(seed);
  return LENGTHS.map((n) => {
    const a = random.normals(1)[0];
    const logp = Array.from(random.normals(n), (x) => -0.05 - Math.abs(x));
    const away = (x: number, by: number) => Math.min(x + by * random.normals(1)[0], -0.001);
    return {
      logp,
      oldLogp: logp.map((x) => away(x, drift)),
      advantages: logp.map(() => a),
      refLogp: logp.map((x) => away(x, 0.5)),
    };
  });
}

interface Weights {
  weights: Float64Array[];
  klWeights: Float64Array[];
}

function rowsOf(samples: Sample[], masks: number[][], { weights, klWeights }: Weights): LossRows {
  const starts = samples.reduce((at, s) => [...at, at[at.length - 1] + s.logp.length], [0]);
  return {
    logp: samples.flatMap((s) => s.logp),
    oldLogp: samples.flatMap((s) => s.oldLogp),
    advantages: samples.flatMap((s) => s.advantages),
    refLogp: samples.flatMap((s) => s.refLogp),
    mask: masks.flat(),
    weights: weights.flatMap((w) => Array.from(w)),
    klWeights: klWeights.flatMap((w) => Array.from(w)),
    seqStart: starts,
  };
}

const OPTIONS = { maxResponseLength: 16 };
/** Losses in which the ratio is a constant weight (stop-gradient). The gradient is that of the loss with the weight held constant. */
const STOP_GRADIENT = new Set(['cispo', 'dppo_tv', 'dppo_kl', 'vespo', 'reinforce']);

describe.each(MODES)('%s', (mode) => {
  test.each([0.05, 0.6])('gradient is the slope of the loss, drift %d', (drift) => {
    const spec = specOf(mode, { klLossCoef: 0.2 });
    const samples = randomSamples(11, drift);
    const rows = rowsOf(samples, MASKS, lossWeights(POLICY_LOSSES[mode], 'token-mean', MASKS, OPTIONS));
    const selected = POLICY_LOSSES[mode].select?.(spec.numbers, rows);
    const at = (e: number, h: number) => {
      const shift = (values: ArrayLike<number>) => Array.from(values, (x, i) => (i === e ? x + h : x));
      const oldLogp = STOP_GRADIENT.has(mode) ? shift(rows.oldLogp) : rows.oldLogp;
      return computePolicyLoss(spec, { ...rows, logp: shift(rows.logp), oldLogp, ...(selected ? { selected } : {}) });
    };
    const { grad } = at(0, 0);
    const h = 1e-6;
    let moved = 0;
    grad.forEach((g, e) => {
      const slope = (at(e, h).loss - at(e, -h).loss) / (2 * h);
      expect(Math.abs(g - slope), `entry ${e}: ${g} is not ${slope}`).toBeLessThan(
        1e-7 * Math.max(1, Math.abs(g)) + 1e-8,
      );
      if (g !== 0) moved++;
    });
    expect(moved).toBeGreaterThan(5);
  });

  test.each([...LOSS_AGG_MODES])('1, 2, 3 and 7 micro-batches give one gradient, %s', (aggMode) => {
    const samples = randomSamples(5, 0.3);
    const isWeights = LENGTHS.map((n, s) => Array.from({ length: n }, (_, t) => 0.5 + ((s + t) % 3) / 2));
    const whole = lossWeights(POLICY_LOSSES[mode], aggMode, MASKS, { ...OPTIONS, isWeights });
    const spec = specOf(mode, { klLossCoef: 0.1 });
    const rows = rowsOf(samples, MASKS, whole);
    const selected = POLICY_LOSSES[mode].select?.(spec.numbers, rows);
    const want = computePolicyLoss(spec, selected ? { ...rows, selected } : rows);
    for (const parts of [1, 2, 3, 7]) {
      const size = Math.ceil(LENGTHS.length / parts);
      const got: number[] = [];
      let loss = 0;
      for (let from = 0; from < LENGTHS.length; from += size) {
        const cut = <T>(all: T[]): T[] => all.slice(from, from + size);
        const weights = { weights: cut(whole.weights), klWeights: cut(whole.klWeights) };
        const part = rowsOf(cut(samples), cut(MASKS), weights);
        const first = rows.seqStart[from];
        const mine = selected?.slice(first, first + part.logp.length);
        const result = computePolicyLoss(spec, mine ? { ...part, selected: mine } : part);
        got.push(...result.grad);
        loss += result.loss;
      }
      expect(loss).toBeCloseTo(want.loss, 12);
      got.forEach((g, e) => expect(g).toBeCloseTo(want.grad[e], 13));
    }
  });

  test('tokens without advantage have exactly value 0 and gradient 0, for losses that say so', () => {
    const spec = specOf(mode);
    const found = [0.05, 0.6, 8].flatMap((drift) => {
      const samples = randomSamples(7, drift).map((s) => ({ ...s, advantages: s.advantages.map(() => 0) }));
      const rows = rowsOf(samples, MASKS, lossWeights(POLICY_LOSSES[mode], 'token-mean', MASKS, OPTIONS));
      const selected = Array.from(rows.logp, (_, e) => e % 2);
      const { perToken, grad } = computePolicyLoss(spec, { ...rows, selected });
      return [...perToken, ...grad];
    });
    expect(found.every((x) => x === 0)).toBe(POLICY_LOSSES[mode].zeroAtZeroAdvantage ?? false);
  });

  test('nothing is trained on: loss 0, no NaN', () => {
    const empty = LENGTHS.map((n) => new Array<number>(n).fill(0));
    const rows = rowsOf(randomSamples(3, 0.3), empty, lossWeights(POLICY_LOSSES[mode], 'token-mean', empty, OPTIONS));
    const { loss, grad, metrics } = computePolicyLoss(specOf(mode), rows);
    expect(loss).toBe(0);
    expect(grad.every((g) => g === 0)).toBe(true);
    expect(Object.values(metrics).every((m) => m === 0)).toBe(true);
  });

  test('extreme ratios give finite results, whatever the values of masked tokens', () => {
    const samples = randomSamples(9, 0.1);
    samples[0].oldLogp[0] -= 300;
    samples[2].logp[0] -= 300;
    samples[2].logp[2] = NaN; // masked
    const rows = rowsOf(samples, MASKS, lossWeights(POLICY_LOSSES[mode], 'seq-mean-token-mean', MASKS, OPTIONS));
    const { loss, grad, metrics } = computePolicyLoss(specOf(mode), rows);
    expect([loss, ...grad, ...Object.values(metrics)].every((x) => Number.isFinite(x))).toBe(true);
  });
});

describe('values computed by hand', () => {
  const one = (spec: PolicyLossSpec, logRatio: number, a: number) =>
    computePolicyLoss(spec, {
      logp: [-1],
      oldLogp: [-1 - logRatio],
      advantages: [a],
      weights: [1],
      seqStart: [0, 1],
    });

  test('vanilla: both clips, the dual clip, and the clamp at 20', () => {
    const spec = recipeSpec('dapo', { clipRatioC: 3 });
    expect(one(spec, Math.log(1.5), 2).loss).toBeCloseTo(-2.56, 12);
    expect(one(spec, Math.log(1.5), 2).grad[0]).toBe(0);
    expect(one(spec, Math.log(1.5), -2).grad[0]).toBeCloseTo(3, 12);
    expect(one(spec, Math.log(0.5), -2)).toMatchObject({ loss: 1.6, grad: new Float64Array([0]) });
    expect(one(spec, Math.log(5), -2)).toMatchObject({ loss: 6, grad: new Float64Array([0]) });
    expect(one(spec, Math.log(5), -2).metrics['actor/pg_clipfrac_lower']).toBeCloseTo(1, 7);
    const free = recipeSpec('dapo', { clipRatioC: 1e12 });
    expect(one(free, 20, -1).grad[0]).toBeCloseTo(Math.exp(20), 3);
    expect(one(free, 20.5, -1).loss).toBeCloseTo(Math.exp(20), 3);
    expect(one(free, 20.5, -1).grad[0]).toBe(0);
  });

  test('cispo never drops a gradient; wMax is the weight itself', () => {
    expect(one(recipeSpec('cispo', { clipRatioHigh: 0.28 }), 1, 1).grad[0]).toBeCloseTo(-1.28, 12);
    expect(one(recipeSpec('cispo', { clipRatioHigh: 0.28, wMax: 2 }), 1, 1).grad[0]).toBe(-2);
  });

  test('gspo stops at a mean log ratio of 10', () => {
    const spec = recipeSpec('gspo', { clipRatioHigh: 1e9 });
    expect(one(spec, 10, 1).grad[0]).toBeCloseTo(-Math.exp(10), 6);
    expect(one(spec, 12, 1)).toMatchObject({ loss: -Math.exp(10), grad: new Float64Array([0]) });
  });

  test('sapo has the slope of policy gradient at ratio 1', () => {
    expect(one(recipeSpec('sapo'), 0, 0.5).grad[0]).toBeCloseTo(-0.5, 12);
    expect(one(recipeSpec('sapo'), 0, -0.5).grad[0]).toBeCloseTo(0.5, 12);
  });

  test('sapo beyond a log ratio of 20 has no gradient at all', () => {
    expect(one(recipeSpec('sapo'), -19, 1).grad[0]).toBeLessThan(0);
    expect(one(recipeSpec('sapo'), -21, 1).grad[0] === 0).toBe(true);
  });

  test('gmpo clips in log space, on the side the advantage pushes to', () => {
    const spec = recipeSpec('gmpo', { clipRatioLow: 0.3, clipRatioHigh: 0.4 });
    expect(one(spec, 0.9, 2)).toMatchObject({ grad: new Float64Array([0]) });
    // verl's two 1e-8 in its means change the result by 1e-7 here
    expect(one(spec, 0.9, 2).loss).toBeCloseTo(-2 * Math.exp(0.4), 6);
    expect(one(spec, -0.9, 2).grad[0]).toBeCloseTo(-2 * Math.exp(-0.9), 6);
    expect(one(spec, 0.9, -2).grad[0]).toBeCloseTo(2 * Math.exp(0.9), 6);
    expect(one(spec, -0.9, -2).loss).toBeCloseTo(2 * Math.exp(-0.3), 6);
    expect(one(spec, -0.9, -2).grad[0] === 0).toBe(true);
    expect(one(spec, -0.9, -2).metrics['actor/pg_clipfrac_lower']).toBeCloseTo(1, 6);
  });

  /**
   * The mean advantage is 0, the mean log-prob -2. Covariances: 2, -1, 0.25, 3.75, and one of an untrained token that would be the largest.
   */
  const covRows: LossRows = {
    logp: [-4, -1, -2.5, -0.5, -90],
    oldLogp: [-4, -1, -2.5, -0.5, -90],
    advantages: [-1, -1, -0.5, 2.5, -90],
    weights: [1, 1, 1, 1, 0],
    mask: [1, 1, 1, 1, 0],
    seqStart: [0, 5],
  };

  test('kl-cov picks the highest covariance: token 3, then 0', () => {
    const pick = (klCovRatio: number) =>
      Array.from(POLICY_LOSSES.kl_cov.select!(recipeSpec('kl_cov', { klCovRatio }).numbers, covRows));
    expect(pick(0.001)).toEqual([0, 0, 0, 1, 0]);
    expect(pick(0.5)).toEqual([1, 0, 0, 1, 0]);
  });

  test('clip-cov removes tokens within its bounds, unless the clip applies to them', () => {
    const spec = recipeSpec('clip_cov', { clipCovRatio: 1, clipCovLb: 1, clipCovUb: 3 });
    const pick = (rows: LossRows, numbers = spec.numbers) => Array.from(POLICY_LOSSES.clip_cov.select!(numbers, rows));
    expect(pick(covRows)).toEqual([1, 0, 0, 0, 0]);
    expect(computePolicyLoss(spec, covRows).grad[0] === 0).toBe(true);
    expect(computePolicyLoss(spec, covRows).metrics['actor/pg_clipfrac']).toBeCloseTo(1 / 4, 7);
    expect(pick({ ...covRows, oldLogp: [-1, -1, -2.5, -0.5, -90] })).toEqual([1, 0, 0, 0, 0]);
    const narrow = { ...spec.numbers, clipRatioLow: 0.2 };
    const clipped = { ...covRows, oldLogp: [-1, -1, -2.5, -0.5, -90] };
    expect(pick(clipped, narrow)).toEqual([0, 0, 0, 0, 0]);
  });

  test('an unknown mode, a missing reference and a missing beta say what to do', () => {
    expect(() => one({ ...recipeSpec('grpo'), lossMode: 'ppo' }, 0, 1)).toThrow(
      'Unknown policy loss "ppo"; known: vanilla, dppo_tv',
    );
    expect(() => one(recipeSpec('grpo', { klLossCoef: 0.1 }), 0, 1)).toThrow(
      'klLossCoef is 0.1 but there are no reference log-probs. Pass refLogp or set klLossCoef to 0.',
    );
    expect(() => one(recipeSpec('dro', { droBeta: 0 }), 0, 1)).toThrow(
      'Policy loss "dro" needs droBeta > 0, but it is 0',
    );
  });
});
