import { describe, expect, test } from 'vitest';
import { ADVANTAGE_ESTIMATORS } from '../../src/grpo/advantages/index.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { groupsWithSignal } from '../../src/grpo/generate/filterGroups.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { stepTokens } from '../../src/grpo/update/stepTokens.ts';
import type { Reward } from '../../src/tasks/task.ts';

const sample = (
  mask: number[],
  reward: Reward,
  stopReason: Sample['trajectory']['stopReason'] = 'completed',
): Sample => ({
  problem: { id: 'p', messages: [], answer: '' },
  group: 0,
  messages: [],
  reward,
  trajectory: {
    promptIds: new Uint32Array(2),
    responseIds: new Uint32Array(mask.length),
    mask: Uint8Array.from(mask),
    logProbs: Float32Array.from(mask, (m) => (m ? -1 : 0)),
    logMass: new Float32Array(mask.length),
    stopReason,
    numTurns: 1,
    numToolCalls: 0,
    numToolErrors: 0,
  },
});

const configOf = (algorithm: object) =>
  resolveTrainConfig({
    name: 't',
    model: { path: 'x' },
    data: { maxPromptLength: 8, maxResponseLength: 8 },
    algorithm,
  });
const table = (rows: ArrayLike<number>[]) => rows.map((row) => Array.from(row));

test('plain: the score, the sampler as the old policy, the mask of the trajectory', () => {
  const samples = [sample([1, 0, 1], { score: 1, acc: 1 }), sample([1], { score: 0, acc: 0 })];
  const got = stepTokens(configOf({ name: 'dr_grpo' }), samples);
  expect(got.rewards).toEqual([1, 0]);
  expect(table(got.advantages)).toEqual([[0.5, 0, 0.5], [-0.5]]);
  expect(table(got.oldLogProbs)).toEqual([[-1, 0, -1], [-1]]);
  expect(got.isWeights).toBeUndefined();
});

test('overlong penalty, truncation mask and KL in the reward', () => {
  const samples = [
    sample([1, 1, 1, 1, 1, 1, 1, 1], { score: 1, acc: 1 }, 'max_tokens'),
    sample([1, 1], { score: 0, acc: 0 }),
  ];
  const config = configOf({
    maskTruncated: true,
    overlongBuffer: { len: 4 },
    useKlInReward: true,
    klCtrl: { klCoef: 0.5 },
  });
  const refLogProbs = samples.map(({ trajectory }) => trajectory.logProbs.map(() => -1.5));
  const got = stepTokens(config, samples, { refLogProbs });
  expect(got.rewards[0]).toBeCloseTo(1 - 1 - 0.5 * 8 * 0.5, 6);
  expect(got.rewards[1]).toBeCloseTo(-0.5 * 2 * 0.5, 6);
  expect(table(got.masks)).toEqual([
    [0, 0, 0, 0, 0, 0, 0, 0],
    [1, 1],
  ]);
  expect(got.metrics['actor/reward_kl_penalty']).toBeCloseTo(0.5, 6);
  expect(() => stepTokens(config, samples)).toThrow(
    'algorithm.useKlInReward needs the reference log-probs of the samples.',
  );
});

test("the trainer's own log-probs become the old ones, with weights against the sampler", () => {
  const samples = [sample([1, 1], { score: 1, acc: 1 }), sample([1, 1], { score: 0, acc: 0 })];
  const oldLogProbs = [
    [-1, -0.5],
    [-1, -9],
  ];
  const rolloutCorrection = { rolloutIs: 'token', rolloutRs: 'token_k1', rolloutRsThreshold: 3 };
  const got = stepTokens(configOf({ rolloutCorrection }), samples, { oldLogProbs });
  expect(table(got.masks)).toEqual([
    [1, 1],
    [1, 0],
  ]);
  expect(got.oldLogProbs).toBe(oldLogProbs);
  expect(samples.map(({ advantage }) => advantage! > 0)).toEqual([true, false]);
  expect(got.isWeights![0][1]).toBeCloseTo(Math.exp(0.5), 6);
  expect(got.metrics['rollout_corr/rollout_rs_masked_fraction']).toBeCloseTo(0.25, 6);
});

test('turn_loo: rewards per turn, what is left over goes to the last turn', () => {
  const samples = [
    sample([1, 0, 1, 1], { score: 1.5, acc: 1, turns: [1, 0] }),
    sample([1, 0, 1], { score: 0, acc: 0 }),
  ];
  const got = stepTokens(configOf({ name: 'turn_loo' }), samples);
  expect(table(got.advantages)).toEqual([
    [1.5, 0, 0.5, 0.5],
    [-1.5, 0, -0.5],
  ]);
});

test('gdpo needs several rewards', () => {
  const samples = [
    sample([1], { score: 1, acc: 1, extra: { a: 1, b: 5 } }),
    sample([1], { score: 0, acc: 0, extra: { a: 0, b: 5 } }),
  ];
  expect(stepTokens(configOf({ name: 'gdpo' }), samples).advantages[0][0]).toBeCloseTo(Math.SQRT1_2, 6);
  expect(() => stepTokens(configOf({ name: 'gdpo' }), [sample([1], { score: 1, acc: 1 })])).toThrow(
    'this task gives none in `extra`',
  );
});

test('gdpo takes the rewards that combineRewards named, by their weights, and those of reward.weights', () => {
  // Two rewards that disagree, each normalised to +-1 / sqrt 2; `seconds` is a number that belongs to none of them.
  const weights = { a: 1, b: 0.25 };
  const samples = [
    sample([1], { score: 1, acc: 1, weights, extra: { a: 1, b: 0, seconds: 9, said: 'x' } }),
    sample([1], { score: 0, acc: 0, weights, extra: { a: 0, b: 1, seconds: 1, said: 'y' } }),
  ];
  const first = (config: ReturnType<typeof configOf>) => stepTokens(config, samples).advantages[0][0];
  // The sum is 0.75 / sqrt 2 and its opposite, whitened: its sign is that of the larger weight.
  expect(first(configOf({ name: 'gdpo' }))).toBeCloseTo(Math.SQRT1_2, 5);
  const config = { ...configOf({ name: 'gdpo' }), reward: { ...configOf({}).reward, weights: { b: 2 } } };
  expect(first(config)).toBeCloseTo(-Math.SQRT1_2, 5);
  expect(first(configOf({ name: 'gdpo', gdpoRewardKeys: ['b'] }))).toBeCloseTo(-Math.SQRT1_2, 5);
  expect(() => first(configOf({ name: 'gdpo', gdpoRewardKeys: ['said'] }))).toThrow(
    'algorithm.gdpoRewardKeys names "said", but the task gives a, b, seconds.',
  );
});

describe('a missing reward', () => {
  const extra = (a: number) => ({ a, b: 1 - a });
  const known = [1, 0.25, 0, 0.5].map((score) => sample([1, 0, 1], { score, acc: 0, extra: extra(score) }));
  const missing = sample([1, 1, 0, 1], { score: NaN, acc: NaN, extra: extra(NaN) });

  test.each(Object.keys(ADVANTAGE_ESTIMATORS))(
    '%s: the others learn as if that sample were not there, and it learns nothing',
    (advEstimator) => {
      const config = configOf({ advEstimator });
      const baselines = (n: number) => Array.from({ length: n }, () => 0.5);
      const alone = stepTokens(config, known, { baselines: baselines(4) });
      const got = stepTokens(config, [...known, missing], { baselines: baselines(5) });
      expect(table(got.advantages.slice(0, 4))).toEqual(table(alone.advantages));
      expect(table(got.advantages.slice(4))).toEqual([[0, 0, 0, 0]]);
      expect(table(got.masks.slice(4))).toEqual([[0, 0, 0, 0]]);
      expect(got.metrics['training/missing_reward_share']).toBe(0.2);
    },
  );

  test('of a whole step is an error, of no sample is no metric', () => {
    expect(() => stepTokens(configOf({}), [missing, missing])).toThrow("None of the step's 2 samples has a reward");
    expect(stepTokens(configOf({}), known).metrics).toEqual({});
  });

  test('neither gives a group signal nor takes it away', () => {
    expect(groupsWithSignal([known[0], missing, known[0]], 'score')).toEqual([]);
    expect(groupsWithSignal([known[0], missing, known[1]], 'score')).toHaveLength(3);
  });
});
