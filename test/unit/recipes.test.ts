import { expect, test } from 'vitest';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import { keyDocs } from '../../src/grpo/config/keys.ts';
import { TRAIN_SCHEMA } from '../../src/grpo/config/schema/index.ts';
import { POLICY_LOSSES } from '../../src/grpo/losses/index.ts';
import {
  defaultLr,
  lrFactor,
  type LrSchedule,
  scheduledLr,
  warmupSteps,
  withLr,
} from '../../src/grpo/update/learningRate.ts';
import { lengthPenalties, maskTruncated, overlongPenalty, updateEntropy } from '../../src/grpo/advantages/shaping.ts';
import { STOP_REASONS } from '../../src/rollout/types.ts';
import { TINY_CONFIG } from '../tinyConfig.ts';

const resolved = (algorithm: object, actor: object = {}) =>
  resolveTrainConfig({ name: 't', model: { path: 'm' }, algorithm, actor });

test('a recipe sets loss, advantage, aggregation and clip; the user overrides any', () => {
  const dapo = resolved({ name: 'dapo' });
  expect(dapo.actor).toMatchObject({ policyLoss: { lossMode: 'vanilla' }, lossAggMode: 'token-mean', clipRatioC: 10 });
  expect(dapo.actor).toMatchObject({ clipRatioLow: 0.2, clipRatioHigh: 0.28 });
  expect(dapo.algorithm.filterGroups).toEqual({ enable: true, metric: 'acc', maxNumGenBatches: 10 });
  const off = resolved({ name: 'dapo', filterGroups: { enable: false } }, { clipRatio: 0.1, clipRatioHigh: 0.3 });
  expect(off.actor).toMatchObject({ clipRatioLow: 0.1, clipRatioHigh: 0.3 });
  expect(off.algorithm.filterGroups.enable).toBe(false);
  const doctor = resolved({ name: 'dr_grpo' }, { lossAggMode: 'token-mean', clipRatioHigh: undefined });
  expect(doctor.actor).toMatchObject({ lossAggMode: 'token-mean', clipRatioHigh: 0.2 });
  expect(doctor.algorithm.scaleRewards).toBe('none');
  const reinforce = resolved({ name: 'reinforce', rolloutCorrection: { rolloutIs: 'sequence' } });
  expect(reinforce.algorithm.rolloutCorrection).toMatchObject({ rolloutIs: 'sequence', bypassMode: true });
});

test('a recipe sets its numbers, next to other numbers of the same loss that the user sets', () => {
  expect(resolved({ name: 'sapo' }).actor.policyLoss).toMatchObject({ tauPos: 1, tauNeg: 1.05 });
  expect(resolved({ name: 'sapo' }, { policyLoss: { tauPos: 2 } }).actor.policyLoss).toMatchObject({
    tauPos: 2,
    tauNeg: 1.05,
  });
  expect(policyLossSpec(resolved({ name: 'kl_cov' })).numbers).toMatchObject({ klCovRatio: 2e-3, ppoKlCoef: 1 });
  expect(policyLossSpec(resolved({}, { policyLoss: { lossMode: 'kl_cov' } })).numbers).toMatchObject({
    klCovRatio: 2e-4,
    ppoKlCoef: 0.1,
  });
});

test.each(Object.keys(RECIPES))('%s resolves, and nothing is written into the table', (name) => {
  const before = JSON.stringify(RECIPES);
  expect(resolved({ name }, { policyLoss: { tauPos: 7 } }).actor.policyLoss.tauPos).toBe(7);
  expect(JSON.stringify(RECIPES)).toBe(before);
});

test('unknown names and values say what is allowed', () => {
  expect(() => resolved({ name: 'ppo' })).toThrow('"algorithm.name" is "ppo"; allowed: grpo | dr_grpo |');
  expect(() => resolved({ name: 'toString' })).toThrow('"algorithm.name" is "toString"');
  expect(() => resolved({}, { policyLoss: { lossMode: 'x' } })).toThrow(
    '"actor.policyLoss.lossMode" is "x"; allowed: vanilla | dppo_tv |',
  );
  expect(() => resolved({}, { clipRatioC: 1 })).toThrow('clipRatioC is 1; allowed: above 1');
});

test('every number of a loss is a key of actor.policyLoss, and every key a number of a loss', () => {
  const numbers = Object.values(POLICY_LOSSES).flatMap((loss) => Object.keys(loss.numbers ?? {}));
  const keys = keyDocs(TRAIN_SCHEMA).flatMap(
    ({ path }) => path.match(/^actor\.policyLoss\.(?!lossMode)(.*)/)?.[1] ?? [],
  );
  // REINFORCE takes its parameters, rolloutIs and rolloutIsThreshold, from algorithm.rolloutCorrection instead of actor.policyLoss.
  expect(numbers.filter((name) => !name.startsWith('rolloutIs')).sort()).toEqual([...keys].sort());
});

test('actor.optim.lr: auto is the rate of the model size, ten times that for LoRA', () => {
  const full = [0.4e6, 2.3e6, 135e6, 500e6, 7e9, 70e9].map((parameters) => defaultLr(parameters, false));
  expect(full).toEqual([2.5e-4, 2.5e-4, 1.5e-5, 6.2e-6, 1e-6, 1e-6]);
  expect([0.4e6, 135e6, 7e9].map((parameters) => defaultLr(parameters, true))).toEqual([1e-3, 1.5e-4, 1e-5]);
  const config = resolveTrainConfig({ name: 'x', model: { path: 'x' } });
  const lrOf = (...of: Parameters<typeof withLr>) => withLr(...of).actor.optim.lr;
  expect(config.actor.optim.lr).toBe('auto');
  expect(lrOf(config, TINY_CONFIG)).toBe(2.5e-4);
  expect(lrOf(config, TINY_CONFIG, true)).toBe(1e-3);
  for (const model of [
    { path: 'x', loraRank: 4 },
    { path: 'x', loraAdapterPath: 'y' },
  ])
    expect(lrOf(resolveTrainConfig({ name: 'x', model }), TINY_CONFIG)).toBe(1e-3);
  expect(lrOf(resolveTrainConfig({ name: 'x', model: { path: 'x' }, actor: { optim: { lr: 3 } } }), TINY_CONFIG)).toBe(
    3,
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
  // Hugging Face's linear schedule: (T - step) / (T - warm-up), here down to minLrRatio.
  const linear: LrSchedule = { ...cosine, lrSchedulerType: 'linear' };
  for (const step of [4, 5, 9, 14, 99])
    expect(lrFactor(linear, step)).toBeCloseTo(0.1 + 0.9 * Math.max(0, (14 - step) / (14 - 4)), 12);
  // The number of warm-up steps is verl's: lr_warmup_steps if it is above 0, otherwise int(ratio x total).
  expect(warmupSteps({ lrWarmupSteps: 0, lrWarmupStepsRatio: 0.1 }, 79)).toBe(7);
  expect(warmupSteps({ lrWarmupSteps: 3, lrWarmupStepsRatio: 0.1 }, 79)).toBe(3);
  // A schedule counts training steps, as in verl, however many updates a step has.
  const optim = { lr: 1, lrWarmupSteps: 2, lrSchedulerType: 'linear' } as const;
  const steps = { data: { trainBatchSize: 8 }, trainer: { totalTrainingSteps: 6 } };
  const run = resolveTrainConfig({ name: 't', model: { path: 'm' }, actor: { ppoMiniBatchSize: 2, optim }, ...steps });
  expect([0, 1, 2, 3, 6].map((step) => scheduledLr(run, step))).toEqual([0.5, 1, 1, 0.75, 0]);
  expect(() => lrFactor({ ...cosine, totalTrainingSteps: 4 }, 5)).toThrow(
    'A cosine schedule needs totalTrainingSteps above lrWarmupSteps (4), but it is 4.',
  );
});

test('overlong answers have a linear penalty', () => {
  const options = { maxResponseLength: 100, bufferLen: 20 };
  expect([50, 80, 90, 100].map((n) => overlongPenalty(n, options))).toEqual([0, 0, -0.5, -1]);
  expect(overlongPenalty(100, { ...options, penaltyFactor: 0.5 })).toBe(-0.5);
  expect(overlongPenalty(100, { ...options, bufferLen: 0 })).toBe(0);
  expect(() => overlongPenalty(1, { ...options, bufferLen: 101 })).toThrow('overlongBufferLen is 101');
});

test('linear length penalty: pass rate x lengths as shares of the most in the group (prime-rl)', () => {
  const rewards = [1, 0, 1, NaN, -1, -1];
  const groups = [0, 0, 0, 0, 1, 1];
  const output = [10, 40, 20, 900, 5, 6];
  const input = [30, 60, 30, 900, 5, 6];
  const turns = [1, 3, 2, 9, 1, 1];
  const lengths = output.map((outputTokens, i) => ({ outputTokens, inputTokens: input[i], turns: turns[i] }));
  const weights = { numOutputTokensWeight: 0.25, numInputTokensWeight: 0.1, numTurnsWeight: 0.1 };
  const want = [0, 1, 2].map((i) => (2 / 3) * (0.25 * (output[i] / 40) + 0.1 * (input[i] / 60) + 0.1 * (turns[i] / 3)));
  const got = lengthPenalties(rewards, groups, lengths, weights);
  want.forEach((penalty, i) => expect(got[i]).toBeCloseTo(penalty, 12));
  expect(Array.from(got.slice(3))).toEqual([0, 0, 0]); // no reward; a group that lost
});

test('samples that a limit ended are removed from the loss', () => {
  const masks = maskTruncated(
    STOP_REASONS.map(() => [1, 0]),
    STOP_REASONS,
  );
  const removed = STOP_REASONS.filter((_, s) => masks[s][0] === 0);
  expect(removed).toEqual(['max_turns', 'max_tokens', 'max_tool_calls', 'context_overflow', 'timeout', 'aborted']);
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
