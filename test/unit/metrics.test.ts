import { expect, test } from 'vitest';
import { bootstrapMetrics } from '../../src/grpo/bootstrap.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { outsideSeconds } from '../../src/grpo/generate/samples.ts';
import { explainLoss } from '../../src/report/explainLoss.ts';
import {
  dataMetrics,
  groupMetrics,
  passAtK,
  passHatK,
  quantile,
  rolloutProbsDiff,
  timingMetrics,
  validationMetrics,
} from '../../src/grpo/metrics.ts';
import { goalReached } from '../../src/grpo/stopWhen.ts';
import type { Trajectory } from '../../src/rollout/types.ts';
import { ENDED } from '../samples.ts';

const trajectory = (promptLength: number, mask: number[], more: Partial<Trajectory> = {}): Trajectory => ({
  promptIds: new Uint32Array(promptLength),
  responseIds: new Uint32Array(mask.length),
  mask: Uint8Array.from(mask),
  logProbs: new Float32Array(mask.length),
  logMass: new Float32Array(mask.length),
  ...{ ...ENDED, numTurns: 2, numToolCalls: 1 },
  ...more,
});

const trajectories = [
  trajectory(3, [1, 0, 1]),
  trajectory(5, [1, 1, 1, 1], {
    numTurns: 4,
    ...{ numToolCalls: 3, numToolErrors: 2, numToolOutputs: 4, numTruncatedOutputs: 1, stopReason: 'max_tokens' },
  }),
];
const rewards = [
  { score: 1.5, acc: 1, extra: { format: 0.5, tone: 2, parsed: '7' } },
  { score: 0, acc: 0, extra: { format: NaN, tone: 4, parsed: '8' } },
];

test("a step's metrics under verl's names", () => {
  const metrics = dataMetrics({
    trajectories,
    rewards,
    groups: ['p', 'p'],
    advantages: [
      [1, 9, 1],
      [-1, -1, -1, -1],
    ],
    maxResponseLength: 4,
    maxPromptLength: 5,
  });
  expect(metrics).toMatchObject({
    'critic/score/mean': 0.75,
    'critic/score/max': 1.5,
    'critic/rewards/min': 0,
    'critic/advantages/max': 1,
    'critic/advantages/abs_mean': 1,
    'critic/acc/mean': 0.5,
    'response_length/mean': 3.5,
    'response_length/clip_ratio': 0.5,
    'prompt_length/max': 5,
    'num_turns/mean': 3,
    'tool_call_counts/max': 3,
    'tool_call_counts/error_rate': 0.5,
    'tools/cut_share': 0.25,
    // Statistics over the samples that have this reward. As in TRL, the standard deviation divides by n - 1.
    'reward/format/mean': 0.5,
    'reward/format/std': 0,
    'reward/tone/mean': 3,
    'reward/tone/std': Math.SQRT2,
    'solved/some': 1,
    'stop/max_tokens': 0.5,
    'response/aborted_ratio': 0,
    frac_reward_zero_std: 0,
  });
  // A reward's text values do not become metrics.
  expect(Object.keys(metrics).filter((name) => name.includes('parsed'))).toEqual([]);
  expect(metrics['critic/advantages/mean']).toBeCloseTo(-1 / 3, 12);
  expect(metrics['response_length/p90']).toBeCloseTo(3.9, 12);
  expect(Object.values(metrics).every(Number.isFinite)).toBe(true);
});

test('no samples give no NaN', () => {
  const empty = { trajectories: [], rewards: [], groups: [], advantages: [], maxResponseLength: 1, maxPromptLength: 1 };
  expect(Object.values(dataMetrics(empty)).every(Number.isFinite)).toBe(true);
});

test('groups without signal and solved shares', () => {
  const of = (acc: number) => ({ score: acc, acc });
  const metrics = groupMetrics([of(1), of(1), of(0), of(0), of(0), of(1)], [1, 1, 2, 2, 3, 3]);
  expect(metrics.frac_reward_zero_std).toBeCloseTo(2 / 3, 12);
  expect([metrics['solved/none'], metrics['solved/some'], metrics['solved/all']]).toEqual([1 / 3, 1 / 3, 1 / 3]);
});

test('groups whose outcomes are unknown count as neither solved nor unsolved', () => {
  const unknown = { score: 1, acc: NaN };
  const none = groupMetrics([unknown, unknown, { score: 2, acc: NaN }, unknown], [1, 1, 2, 2]);
  expect(none).toEqual({ frac_reward_zero_std: 0.5, 'critic/group_std/mean': expect.closeTo(0.354, 3) });
  const [right, wrong] = [1, 0].map((acc) => ({ score: acc, acc }));
  const some = groupMetrics([unknown, right, right, right, wrong, right], [1, 1, 2, 2, 3, 3]);
  expect(some).toMatchObject({ 'solved/none': 0, 'solved/some': 0.5, 'solved/all': 0.5 });
});

test('probabilities, not logs, are compared', () => {
  const diff = rolloutProbsDiff([Math.log(0.5), Math.log(0.25)], [Math.log(0.5), Math.log(0.2)]);
  expect(diff['training/rollout_probs_diff_max']).toBeCloseTo(0.05, 12);
  expect(diff['training/rollout_probs_diff_mean']).toBeCloseTo(0.025, 12);
  expect(diff['training/rollout_actor_probs_pearson_corr']).toBeCloseTo(1, 12);
  expect(rolloutProbsDiff([-1, -2], [-1, -2])['training/rollout_probs_diff_max']).toBe(0);
  expect(rolloutProbsDiff([], [])).toEqual({ 'training/rollout_probs_diff_valid': 0 });
});

test('times per token: gen by response tokens, the update by all', () => {
  const metrics = timingMetrics({ gen: 0.7, update_actor: 1.5, save: 9, step: 3 }, trajectories);
  expect(metrics['timing_per_token_ms/gen']).toBeCloseTo(100, 9);
  expect(metrics['timing_per_token_ms/update_actor']).toBeCloseTo(100, 9);
  expect(metrics).not.toHaveProperty('timing_per_token_ms/save');
  expect(metrics).toMatchObject({ 'timing_s/save': 9, 'perf/total_num_tokens': 15 });
  expect(metrics).not.toHaveProperty('perf/throughput'); // `throughput` counts generated tokens
});

/** Returns all subsets of size k of n samples, as lists of indices. */
function subsets(n: number, k: number): number[][] {
  if (k === 0) return [[]];
  return Array.from({ length: n }, (_, first) => first).flatMap((first) =>
    subsets(n - first - 1, k - 1).map((rest) => [first, ...rest.map((r) => r + first + 1)]),
  );
}

test.each([
  [5, 2, 1],
  [5, 2, 3],
  [5, 0, 2],
  [5, 5, 5],
  [6, 3, 4],
])('pass@k and pass^k of n=%i c=%i k=%i against all subsets', (n, c, k) => {
  const all = subsets(n, k);
  expect(passAtK(n, c, k)).toBeCloseTo(all.filter((s) => s.some((i) => i < c)).length / all.length, 12);
  expect(passHatK(n, c, k)).toBeCloseTo(all.filter((s) => s.every((i) => i < c)).length / all.length, 12);
});

test('validation names, and k = 2, 4, n', () => {
  expect(validationMetrics('gsm8k', [[1], [0]])).toEqual({ 'val-core/gsm8k/acc/mean@1': 0.5 });
  expect(validationMetrics('gsm8k', [[1], [NaN], [0], [NaN]])).toEqual({
    'val-core/gsm8k/acc/mean@1': 0.5,
    'val-aux/gsm8k/acc/missing_share': 0.5,
  });
  expect(validationMetrics('gsm8k', [[NaN]])).toEqual({ 'val-aux/gsm8k/acc/missing_share': 1 });
  const metrics = validationMetrics('t', [[1, 0, 0, 0, 0, 0]]);
  expect(Object.keys(metrics)).toEqual(
    ['mean@6', 'pass@2', 'pass^2', 'pass@4', 'pass^4', 'pass@6', 'pass^6'].map((m) => `val-core/t/acc/${m}`),
  );
  expect(metrics['val-core/t/acc/pass@2']).toBeCloseTo(1 / 3, 12);
  expect(() => passAtK(2, 1, 3)).toThrow('pass@3 cannot be computed from 2 samples; allowed: k from 1 to 2.');
});

test('quantiles interpolate', () => {
  expect(quantile([4, 1, 3, 2], 0.5)).toBe(2.5);
  expect(quantile([7], 0.9)).toBe(7);
});

test('the explanation of the loss covers cancelled, silent and off-policy groups, and the first update', () => {
  const base = { 'actor/pg_loss': -0.0004, 'critic/advantages/abs_mean': 0.7, frac_reward_zero_std: 0.25 };
  expect(explainLoss(base)).toMatch(
    /\u22120\.0004, as expected: .* mean \|advantage\| is 0\.70, and 75% of the groups/,
  );
  expect(explainLoss({ ...base, frac_reward_zero_std: 0.95 })).toMatch(/all tries earn the same, so there is little/);
  expect(explainLoss({ ...base, frac_reward_zero_std: 0.95, 'solved/all': 0.9 })).toMatch(
    /in 95% of the groups all tries earn the same \(90% solve every one\)/,
  );
  expect(explainLoss({ ...base, 'actor/pg_loss': 0.3 })).toMatch(/is 0\.3000: the policy has moved/);
  expect(explainLoss({ ...base, 'actor/pg_loss': 0.3, 'critic/advantages/mean': -0.3 })).toMatch(
    /is 0\.3000, the negated mean advantage per token/,
  );
  const single = { ...base, frac_reward_zero_std: 1 };
  expect(explainLoss(single, 1)).toMatch(/With one try per prompt \(rollout\.n 1\) the advantage is the reward/);
  expect(explainLoss({})).toBeUndefined();
  expect(explainLoss({ ...base, 'actor/pg_loss': NaN })).toBeUndefined();
  expect(explainLoss({ ...base, 'critic/advantages/abs_mean': NaN })).toBeUndefined();
});

test('best, worst and majority of k by bootstrap: their expectation, verl names, core only at n', () => {
  const accs = [1, 0, 0, 0];
  const metrics = bootstrapMetrics('t', [{ accs, preds: ['7', '5', '5', undefined] }]);
  const value = (name: string) => metrics[`val-core/t/acc/${name}`] ?? metrics[`val-aux/t/acc/${name}`];
  // k samples drawn with replacement, each right with p = 1/4: at least one is right with 1 - (3/4)^k, all with (1/4)^k.
  for (const k of [2, 4]) {
    expect(value(`best@${k}/mean`)).toBeCloseTo(1 - 0.75 ** k, 1);
    expect(value(`best@${k}/std`)).toBeCloseTo(Math.sqrt(0.75 ** k * (1 - 0.75 ** k)), 1);
    expect(value(`worst@${k}/mean`)).toBeCloseTo(0.25 ** k, 1);
  }
  // With a vote of two answers, the first decides unless both agree, so the result is right with p = 1/4.
  expect(value('maj@2/mean')).toBeCloseTo(0.25, 1);
  expect(value('std@4')).toBeCloseTo(Math.sqrt(0.1875), 12); // like numpy: of the population
  expect(Object.keys(metrics).filter((name) => name.startsWith('val-core/'))).toEqual(
    ['best@4/mean', 'best@4/std', 'maj@4/mean', 'maj@4/std'].map((name) => `val-core/t/acc/${name}`),
  );
  // Seven of eight answers agree, so the majority wins almost always.
  const agreed = bootstrapMetrics('t', [
    { accs: [1, 1, 1, 1, 1, 1, 1, 0], preds: [...Array<string>(7).fill('a'), 'b'] },
  ]);
  expect(agreed['val-core/t/acc/maj@8/mean']).toBeGreaterThan(0.99);
  expect(agreed['val-core/t/acc/best@8/mean']).toBe(1);
  // Answers without a prediction vote together, as in verl: here five of eight.
  const silent = [...Array<undefined>(5).fill(undefined), '1', '1', '1'];
  const outvoted = bootstrapMetrics('t', [{ accs: [0, 0, 0, 0, 0, 1, 1, 1], preds: silent }]);
  expect(outvoted['val-core/t/acc/maj@8/mean']).toBeLessThan(0.35);
  expect(bootstrapMetrics('t', [{ accs, preds: ['7', '5', '5', undefined] }])).toEqual(metrics); // seeded
  expect(Object.keys(bootstrapMetrics('t', [{ accs: [1, 0], preds: [undefined, undefined] }])).join()).not.toContain(
    'maj',
  );
  expect(bootstrapMetrics('t', [{ accs: [1], preds: ['1'] }])).toEqual({});
});

test('stopWhen: holds at the bound, is checked only when the metric is logged, and names unknown metrics', () => {
  const config = (stopWhen: { metric: string; atLeast?: number; atMost?: number }) =>
    resolveTrainConfig({ name: 'x', model: { path: 'x' }, trainer: { stopWhen, testFreq: 5 } });
  const acc = 'val-core/t/acc/mean@1';
  const step = { 'training/global_step': 3, 'timing_s/step': 1, 'actor/entropy': 0.2 };
  const evaluated = { ...step, [acc]: 0.95, 'timing_s/testing': 1 };
  expect(goalReached(config({ metric: acc, atLeast: 0.95 }), evaluated, false)).toBe(`${acc} is 0.95, at least 0.95`);
  expect(goalReached(config({ metric: acc, atLeast: 0.96 }), evaluated, false)).toBeUndefined();
  expect(goalReached(config({ metric: acc, atLeast: 0.5 }), step, true)).toBeUndefined();
  expect(goalReached(config({ metric: 'actor/entropy', atMost: 0.2 }), step, true)).toContain('at most 0.2');
  expect(() => goalReached(config({ metric: 'actor/entrpy', atMost: 1 }), step, true)).toThrow(
    'trainer.stopWhen.metric is "actor/entrpy", which step 3 lacks. Did you mean "actor/entropy"?',
  );
  expect(goalReached(config({ metric: 'actor/entrpy', atMost: 1 }), step, false)).toBeUndefined();
  expect(() => goalReached(config({ metric: 'val-core/t/acc/mean@2', atLeast: 1 }), evaluated, false)).toThrow(
    `Did you mean "${acc}"?`,
  );
});

test('seconds outside the model are wall time: spans that overlap count once', () => {
  const seconds = (...tools: [number, number][]) => outsideSeconds({ tools, reward: [] }).tools;
  expect(seconds()).toBe(0);
  expect(seconds([1000, 3000], [2000, 2500], [2800, 4000])).toBe(3);
  expect(seconds([5000, 6000], [0, 1000])).toBe(2);
  expect(seconds([0, 1000], [0, 1000], [1000, 1000])).toBe(1);
  // 64 samples wait for the reward during the same second, which counts once.
  const many = Array.from({ length: 64 }, (): [number, number] => [100, 1100]);
  expect(outsideSeconds({ tools: [], reward: many })).toEqual({ tools: 0, reward: 1 });
});
