import { expect, test } from 'vitest';
import { describeRecipe, RECIPES, resolveRecipe } from '../../src/grpo/config/recipes.ts';
import { lrFactor, type LrSchedule } from '../../src/grpo/update/learningRate.ts';
import { maskTruncated, overlongPenalty, renormalize, updateEntropy } from '../../src/grpo/advantages/shaping.ts';

test('a recipe sets loss, advantage, aggregation and clip; the user overrides any', () => {
  expect(resolveRecipe('dapo')).toMatchObject({
    lossMode: 'vanilla',
    lossAggMode: 'token-mean',
    clipRatioLow: 0.2,
    clipRatioHigh: 0.28,
    filterGroups: 1,
  });
  expect(resolveRecipe('dr_grpo', { lossAggMode: 'token-mean', clipRatioHigh: undefined })).toMatchObject({
    lossAggMode: 'token-mean',
    scaleRewards: 'none',
    clipRatioHigh: 0.2,
  });
});

test.each(Object.keys(RECIPES))('%s resolves and is described', (name) => {
  expect(describeRecipe(name, resolveRecipe(name))).toContain(`algorithm: ${name}\n`);
});

test('what a recipe changed is marked', () => {
  const text = describeRecipe('dapo', resolveRecipe('dapo'));
  expect(text).toContain('  * clipRatioHigh: 0.28');
  expect(text).toContain('    clipRatioLow: 0.2');
});

test('unknown names and values say what is allowed', () => {
  expect(() => resolveRecipe('ppo')).toThrow('Unknown algorithm "ppo"; known are grpo, dr_grpo,');
  expect(() => resolveRecipe('toString')).toThrow('Unknown algorithm "toString"');
  expect(() => resolveRecipe('grpo', { lossMode: 'x' })).toThrow('Unknown policy loss "x"');
  expect(() => resolveRecipe('grpo', { clipRatioC: 1 })).toThrow(
    'clipRatioC is 1; the dual-clip bound must be above 1',
  );
});

test('warm-up, cosine to the floor, constant', () => {
  const schedule: LrSchedule = {
    lrSchedulerType: 'constant',
    lrWarmupSteps: 4,
    totalTrainingSteps: 14,
    minLrRatio: 0.1,
    numCycles: 0.5,
  };
  expect([0, 1, 3, 4, 50].map((step) => lrFactor(schedule, step))).toEqual([0.25, 0.5, 1, 1, 1]);
  const cosine = { ...schedule, lrSchedulerType: 'cosine' as const };
  expect(lrFactor(cosine, 4)).toBe(1);
  expect(lrFactor(cosine, 9)).toBeCloseTo(0.55, 12);
  expect(lrFactor(cosine, 14)).toBeCloseTo(0.1, 12);
  expect(lrFactor(cosine, 99)).toBeCloseTo(0.1, 12);
  expect(() => lrFactor({ ...cosine, totalTrainingSteps: 4 }, 5)).toThrow(
    'A cosine schedule needs totalTrainingSteps above lrWarmupSteps (4), but it is 4.',
  );
});

test('overlong answers pay along a line', () => {
  const options = { maxResponseLength: 100, bufferLen: 20 };
  expect([50, 80, 90, 100].map((n) => overlongPenalty(n, options))).toEqual([0, 0, -0.5, -1]);
  expect(overlongPenalty(100, { ...options, penaltyFactor: 0.5 })).toBe(-0.5);
  expect(overlongPenalty(100, { ...options, bufferLen: 0 })).toBe(0);
  expect(() => overlongPenalty(1, { ...options, bufferLen: 101 })).toThrow('overlongBufferLen is 101');
});

test('truncated samples leave the loss', () => {
  const masks = maskTruncated(
    [
      [1, 1],
      [1, 0],
    ],
    ['max_tokens', 'completed'],
  );
  expect(masks.map((m) => Array.from(m))).toEqual([
    [0, 0],
    [1, 0],
  ]);
});

test('the entropy bonus acts while the entropy is too low', () => {
  const start = {
    entropyCoeff: 0.01,
    entropyTarget: 0.2,
    entropyCoeffDelta: 0.005,
    entropyCoeffMin: 0,
    entropyCoeffMax: 0.013,
  };
  expect(updateEntropy(start, 0.1)).toMatchObject({ controller: { entropyCoeff: 0.013 }, coeff: 0.013 });
  expect(updateEntropy(start, 0.5)).toMatchObject({ controller: { entropyCoeff: 0.005 }, coeff: 0 });
});

test('at top-p 0.9 the first ratio is 1 where the naive one is off by more than 1%', () => {
  const p = [0.5, 0.3, 0.12, 0.05, 0.03];
  const kept = [0.5, 0.3, 0.12]; // smallest set that reaches 0.9
  const mass = kept.reduce((a, b) => a + b, 0);
  const trainer = kept.map((_, j) => Math.log(p[j]));
  const logMass = kept.map(() => Math.log(mass));
  const sampler = kept.map((q) => Math.log(q / mass));
  const meanRatio = (logps: ArrayLike<number>) =>
    kept.reduce((sum, q, j) => sum + (q / mass) * Math.exp(logps[j] - sampler[j]), 0);
  expect(Math.abs(meanRatio(trainer) - 1)).toBeGreaterThan(0.01);
  expect(meanRatio(renormalize(trainer, logMass))).toBeCloseTo(1, 5);
});
