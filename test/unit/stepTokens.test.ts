import { describe, expect, test } from 'vitest';
import { ADVANTAGE_ESTIMATORS } from '../../src/grpo/advantages/index.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { policyLossSpec } from '../../src/grpo/update/lossSpec.ts';
import { groupsWithSignal } from '../../src/grpo/generate/filterGroups.ts';
import { computePolicyLoss } from '../../src/grpo/losses/index.ts';
import { tokenWeights } from '../../src/grpo/losses/aggregate.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { noStats } from '../../src/rollout/server/stats.ts';
import { PolicyUpdater } from '../../src/grpo/update/updater.ts';
import { scriptedEngine } from '../scriptedRuns.ts';
import { stepTokens } from '../../src/grpo/update/stepTokens.ts';
import type { Reward } from '../../src/tasks/task.ts';
import { rng } from '../random.ts';
import { ENDED } from '../samples.ts';
import type { LossAggMode } from '../../src/grpo/losses/types.ts';

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
    ...{ ...ENDED, stopReason },
  },
});

const configOf = (algorithm: object, reward: object = {}) =>
  resolveTrainConfig({
    name: 't',
    model: { path: 'x' },
    data: { maxPromptLength: 8, maxResponseLength: 8 },
    algorithm,
    reward,
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
  const config = configOf(
    {
      maskTruncated: true,
      useKlInReward: true,
      klCtrl: { klCoef: 0.5 },
    },
    { overlongBuffer: { len: 4 } },
  );
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

describe('KL in the reward of token-level estimators is subtracted from each token, as in verl', () => {
  /** Rewards 1 and 0. The KL is 0.5 (k1: old - ref), at the first token of one sample and at the last token of the other. */
  const samples = () => [1, 0].map((score) => sample([1, 1, 1, 1], { score, acc: score }));
  const refLogProbs = [
    [-1.5, -1, -1, -1],
    [-1, -1, -1, -1.5],
  ];
  const kl = { useKlInReward: true, klCtrl: { klCoef: 1 } };
  /** Computes, like verl, token_level_rewards = token_level_scores - beta * kld, with the score on the last token. */
  const tokenRewards = [
    [-0.5, 0, 0, 1],
    [0, 0, 0, 0 - 0.5],
  ];
  const toGo = tokenRewards.map((rewards) => rewards.map((_, t) => rewards.slice(t).reduce((a, b) => a + b)));
  const expectTable = (got: ArrayLike<number>[], want: number[][]) =>
    got.forEach((row, s) => Array.from(row).forEach((a, t) => expect(a).toBeCloseTo(want[s][t], 5)));

  test('reinforce_plus_plus: masked_whiten of the returns', () => {
    const all = toGo.flat();
    const mean = all.reduce((a, b) => a + b) / 8;
    const variance = all.reduce((total, r) => total + (r - mean) ** 2, 0) / 7; // unbiased
    const want = toGo.map((row) => row.map((r) => (r - mean) / Math.sqrt(variance + 1e-8)));
    const { advantages, rewards } = stepTokens(configOf({ name: 'reinforce_plus_plus', ...kl }), samples(), {
      refLogProbs,
    });
    expectTable(advantages, want);
    expect(Array.from(advantages[0], (a) => Number(a.toFixed(3)))).toEqual([0.415, 1.079, 1.079, 1.079]);
    expect(rewards).toEqual([0.5, -0.5]); // token_level_rewards.sum(-1), the input of outcome estimators
  });

  test('remax: returns minus the greedy reward', () => {
    const want = toGo.map((row) => row.map((r) => r - 0.25));
    const extras = { refLogProbs, baselines: [0.25, 0.25] };
    expectTable(stepTokens(configOf({ name: 'remax', ...kl }), samples(), extras).advantages, want);
  });

  test('the coefficient that an adaptive controller left is not used by a fixed one', () => {
    const coefficient = (type: 'fixed' | 'adaptive') => {
      const config = configOf({ ...kl, klCtrl: { type, klCoef: 0.5 } });
      return stepTokens(config, samples(), { refLogProbs, klCoef: 0.125 }).metrics['actor/reward_kl_penalty_coeff'];
    };
    expect([coefficient('fixed'), coefficient('adaptive')]).toEqual([0.5, 0.125]);
  });

  test('turn_loo: the KL of a token belongs to its turn', () => {
    const turns = [1, 0].map((score) => sample([1, 0, 1, 1], { score, acc: score }));
    // returns to go: [0.5, 1] and [-0.5, -0.5]; the baseline is the return of the other sample
    const want = [
      [1, 0, 1.5, 1.5],
      [-1, 0, -1.5, -1.5],
    ];
    expectTable(stepTokens(configOf({ name: 'turn_loo', ...kl }), turns, { refLogProbs }).advantages, want);
  });
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

describe('a removed sample does not change the weights of the others (verl divides by ppoMiniBatchSize x n)', () => {
  const whole = [1, 0, 0].map((score) => sample([1, 1], { score, acc: score }));
  const oldLogProbs = [
    [-1, -1],
    [-1, -1],
    [-1, -9],
  ];
  const rolloutCorrection = { rolloutRs: 'seq_sum_k1', rolloutRsThreshold: '0.5_2' };
  test.each([
    ['masked', { maskTruncated: true }, [...whole.slice(0, 2), sample([1, 1], { score: 0, acc: 0 }, 'max_tokens')], {}],
    ['without a reward', {}, [...whole.slice(0, 2), sample([1, 1], { score: NaN, acc: NaN })], {}],
    ['rejected', { rolloutCorrection }, whole, { oldLogProbs }],
  ])('%s', (_, algorithm, samples, extras) => {
    const { masks } = stepTokens(configOf({ name: 'dr_grpo', ...algorithm }), samples, extras);
    expect(table(masks)[2]).toEqual([0, 0]);
    const options = { maxResponseLength: 8, globalBatchSize: 3 };
    const verl = 1 / 3; // a sequence's share of global_batch_size
    expect(table(tokenWeights('seq-mean-token-sum', masks, options))).toEqual([
      [verl, verl],
      [verl, verl],
      [0, 0],
    ]);
    expect(tokenWeights('seq-mean-token-mean', masks, options)[0][0]).toBeCloseTo(verl / 2, 7);
    expect(tokenWeights('seq-mean-token-sum-norm', masks, options)[0][0]).toBeCloseTo(verl / 8, 12);
    expect(tokenWeights('token-mean', masks, options)[0][0]).toBe(1 / 4); // N: the remaining samples
  });
});

describe('S of a step whose caller chooses the groups is the number of samples of the mini-batch', () => {
  /** Returns the sum of the loss weights in each update: 1 if a mini-batch is averaged over its own samples. */
  async function weightSums(groups: number[], config: Parameters<typeof resolveTrainConfig>[0], isOwnSize = true) {
    const engine = scriptedEngine();
    const sums: number[] = [];
    const train = engine.model.forwardBackward.bind(engine.model);
    engine.model.forwardBackward = (batch, loss) => {
      sums.push('inputs' in loss ? loss.inputs.weights.reduce((a, b) => a + b, 0) : NaN);
      return train(batch, loss);
    };
    const samples = groups.map((group, s) => ({ ...sample([1, 1], { score: s % 2, acc: 0 }), group }));
    const settings = resolveTrainConfig(config);
    if (isOwnSize) {
      const step = { samples, seconds: { tools: 0, reward: 0 }, stats: noStats(), metrics: {} };
      const task = {
        name: 't',
        train: () => samples[0].problem,
        heldOut: () => [],
        reward: () => ({ score: 0, acc: 0 }),
      };
      await new GrpoTrainer({
        config: settings,
        engine,
        task,
        source: { generate: () => Promise.resolve(step) },
      }).step();
    } else {
      const start = { step: 0, updates: 0 };
      await new PolicyUpdater(settings, engine).update(samples, stepTokens(settings, samples), start);
    }
    return sums;
  }
  const config = (lossAggMode: LossAggMode) => ({
    name: 't',
    model: { path: 'x' },
    data: { trainBatchSize: 4, maxPromptLength: 8, maxResponseLength: 2 },
    rollout: { n: 2 },
    actor: { ppoMiniBatchSize: 4, lossAggMode, skipZeroAdvantages: false },
  });

  test.each([
    ['as many groups as ppoMiniBatchSize', [0, 0, 1, 1, 2, 2, 3, 3], [1]],
    ['fewer groups, as learner.step({ groups: 1 }) takes', [0, 0], [1]],
    ['forks, which add rows to a group', [0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3], [1]],
    ['a last mini-batch that is not full', [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [1, 1]],
  ])('%s', async (_, groups, wanted) => {
    for (const mode of ['seq-mean-token-mean', 'seq-mean-token-sum-norm'] as const) {
      const sums = await weightSums(groups, config(mode));
      expect(sums).toHaveLength(wanted.length);
      sums.forEach((sum, i) => expect(sum).toBeCloseTo(wanted[i], 6));
    }
  });

  test('otherwise S is that of a full mini-batch, and a full one has the same weights in both', async () => {
    const mode = config('seq-mean-token-mean');
    expect((await weightSums([0, 0], mode, false))[0]).toBeCloseTo(1 / 4, 6);
    const full = [0, 0, 1, 1, 2, 2, 3, 3];
    expect(await weightSums(full, mode, false)).toEqual(await weightSums(full, mode));
  });
});

describe('VESPO with weights against the sampler', () => {
  const config = (rolloutCorrection: object) => configOf({ name: 'vespo', rolloutCorrection });
  test('VESPO uses the weights in its sequence weight, like TRL, and multiplies no loss by them', () => {
    const samples = [sample([1, 0, 1], { score: 1, acc: 1 }), sample([1, 1], { score: 0, acc: 0 })];
    const oldLogProbs = [
      [-0.7, 0, -1.2],
      [-1.4, -0.1], // the last weight, exp(0.9), is clipped to 2
    ];
    const logp = [
      [-0.6, 0, -1.1],
      [-1.5, -0.3],
    ];
    const settings = config({ rolloutIs: 'token', rolloutIsThreshold: 2 });
    const tokens = stepTokens(settings, samples, { oldLogProbs });
    expect(tokens.isWeights).toBeUndefined();
    const { perToken } = computePolicyLoss(policyLossSpec(settings), {
      logp: logp.flat(),
      oldLogp: table(tokens.oldLogProbs).flat(),
      advantages: table(tokens.advantages).flat(),
      weights: [1, 0, 1, 1, 1],
      mask: [1, 0, 1, 1, 1],
      seqStart: [0, 3, 5],
    });
    const sampler = -1;
    const want = logp.flatMap((row, s) => {
      const trained = row.map((_, t) => samples[s].trajectory.mask[t]);
      const ratio = row.reduce((sum, l, t) => sum + trained[t] * (l - oldLogProbs[s][t]), 0);
      const is = row.map((_, t) => (trained[t] ? Math.min(Math.exp(oldLogProbs[s][t] - sampler), 2) : 1));
      const w = Math.exp(ratio + is.reduce((sum, x) => sum + Math.log(x), 0));
      const advantage = tokens.advantages[s][0];
      const [k, lambda] = advantage >= 0 ? [2, 3] : [3, 2];
      const phi = Math.exp(lambda + k * Math.log(w) - lambda * w);
      return row.map((l, t) => -phi * advantage * l * trained[t]);
    });
    perToken.forEach((loss, e) => expect(loss).toBeCloseTo(want[e], 6));
  });

  test('VESPO refuses weights of sequences', () => {
    expect(() => config({ rolloutIs: 'sequence' })).toThrow('Set rolloutIs to "token", or remove it.');
  });
});

test('lengthPenalty: sampled and other tokens are counted separately, and subtracted from the score', () => {
  const samples = [sample([1, 0, 0, 1], { score: 1, acc: 1 }), sample([1], { score: 1, acc: 1 })];
  const config = configOf({ lengthPenalty: { type: 'linear' }, name: 'dr_grpo' });
  const { rewards, advantages, metrics } = stepTokens(config, samples);
  // Pass rate 1. Sampled tokens of the two samples: 2 and 1. Other tokens (a prompt of 2, a tool's 2): 4 and 2. One turn each.
  const penalties = [0.25 + 0.1 + 0.1, 0.25 / 2 + 0.1 / 2 + 0.1];
  rewards.forEach((reward, s) => expect(reward).toBeCloseTo(1 - penalties[s], 12));
  expect(advantages[1][0]).toBeCloseTo((penalties[0] - penalties[1]) / 2, 12); // the short one is now better
  expect(metrics['training/length_penalty']).toBeCloseTo((penalties[0] + penalties[1]) / 2, 12);
  expect(() => configOf({ name: 'gdpo', lengthPenalty: { type: 'linear' } })).toThrow('algorithm.lengthPenalty.type');
});

test('turn_loo: rewards per turn, and the rest goes to the last turn', () => {
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

test('gdpo uses the rewards named by combineRewards, with their weights or those of reward.weights', () => {
  // Two rewards that disagree, each normalised to +-1 / sqrt 2. `seconds` is a logged number and not a reward.
  const weights = { a: 1, b: 0.25 };
  const samples = [
    sample([1], { score: 1, acc: 1, weights, extra: { a: 1, b: 0, seconds: 9, said: 'x' } }),
    sample([1], { score: 0, acc: 0, weights, extra: { a: 0, b: 1, seconds: 1, said: 'y' } }),
  ];
  const first = (config: ReturnType<typeof configOf>) => stepTokens(config, samples).advantages[0][0];
  // The weighted sum is 0.75 / sqrt 2 and its opposite, then whitened. Its sign is that of the reward with the larger weight.
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

  test('if all samples lack a reward, the step fails; if none does, there is no metric', () => {
    expect(() => stepTokens(configOf({}), [missing, missing])).toThrow("None of the step's 2 samples has a reward");
    const unjudged = { ...missing, reward: { ...missing.reward, extra: { judge: 'not judged: too long', rule: 0 } } };
    expect(() => stepTokens(configOf({}), [unjudged, missing])).toThrow(
      'all scores are NaN (the first sample: judge: not judged: too long). Look',
    );
    expect(stepTokens(configOf({}), known).metrics).toEqual({});
  });

  test('a missing reward does not affect whether a group has a signal', () => {
    expect(groupsWithSignal([known[0], missing, known[0]], 'score')).toEqual([]);
    expect(groupsWithSignal([known[0], missing, known[1]], 'score')).toHaveLength(3);
  });

  test('a group whose outcomes are all unknown has a signal if its scores differ', () => {
    const of = (score: number, acc: number) => sample([1], { score, acc });
    expect(groupsWithSignal([of(1, NaN), of(2, NaN)], 'acc')).toHaveLength(2);
    expect(groupsWithSignal([of(1, NaN), of(1, NaN)], 'acc')).toEqual([]);
    expect(groupsWithSignal([of(1, 0), of(2, NaN), of(3, 0)], 'acc')).toEqual([]);
  });
});

describe('rejection removes tokens from turns that were sampled, and moves no credit', () => {
  const modes = Object.entries({
    ...{ token_k1: 1.6, token_k2: 1.6, token_k3: 1.6, 'token_k1,seq_mean_k1': 1.6 },
    ...{ seq_sum_k1: 6, seq_sum_k2: 3, seq_sum_k3: 3, seq_max_k2: 1.5, seq_max_k3: 1.5 },
    ...{ seq_mean_k1: 1.3, seq_mean_k2: 0.6, seq_mean_k3: 0.6 },
  });

  test.each(modes)('turn_loo: %s, 100 random masks', (rolloutRs, rolloutRsThreshold) => {
    const { uniform, normals } = rng(29);
    const rolloutCorrection = { rolloutRs, rolloutRsThreshold };
    const config = configOf({ name: 'turn_loo', gamma: 0.5, rolloutCorrection });
    let [rejected, kept] = [0, 0];
    for (let step = 0; step < 25; step++) {
      const masks = Array.from({ length: 4 }, () => Array.from({ length: 8 }, () => (uniform() < 0.7 ? 1 : 0)));
      const runs = masks.map((mask) => mask.join('').match(/1+/g) ?? []);
      const given = runs.map((turns) => turns.map(() => Math.round(8 * uniform()) / 8));
      const scores = runs.map(() => Math.round(8 * uniform()) / 8);
      const samples = masks.map((mask, s) =>
        sample(mask, { score: scores[s], acc: 0, ...(step % 2 === 0 && { turns: given[s] }) }),
      );
      const oldLogProbs = masks.map((mask) => normals(mask.length).map((x) => -1 + x));
      const got = stepTokens(config, samples, { oldLogProbs });

      // Computed by hand: the part of the outcome that exceeds the turns' rewards is added to the last turn. The return of turn j is r_j +
      // R_(j+1) / 2.
      const returns = runs.map((turns, s) => {
        const rewards = turns.map((_, j) => (step % 2 === 0 ? given[s][j] : 0));
        const rest = scores[s] - rewards.reduce((a, b) => a + b, 0);
        rewards.push((rewards.pop() ?? 0) + rest);
        return turns.map((_, j) => rewards.slice(j).reduce((total, r, k) => total + r / 2 ** k, 0));
      });
      masks.forEach((mask, s) => {
        const others = returns.filter((R, k) => k !== s && R.length > 0);
        let turn = -1;
        mask.forEach((m, t) => {
          if (m === 1 && mask[t - 1] !== 1) turn++;
          const isKept = got.masks[s][t] === 1;
          [rejected, kept] = [rejected + (m === 1 && !isKept ? 1 : 0), kept + (isKept ? 1 : 0)];
          const there = others.filter((R) => R.length > turn).map((R) => R[turn]);
          const values = there.length > 0 ? there : others.map((R) => R[0]);
          const baseline = values.reduce((a, b) => a + b, 0) / values.length;
          expect(got.advantages[s][t]).toBeCloseTo(isKept ? returns[s][turn] - baseline : 0, 12);
        });
      });
    }
    expect(rejected).toBeGreaterThan(20);
    expect(kept).toBeGreaterThan(20);
  });

  test('turn_loo: a sample without a token left stays in the baseline of the others, as in groups of outcomes', () => {
    const samples = [sample([1, 0, 1], { score: 1, acc: 1 }), sample([1, 0, 1], { score: 0.5, acc: 0 }, 'max_tokens')];
    const { advantages } = stepTokens(configOf({ name: 'turn_loo', maskTruncated: true }), samples);
    expect(table(advantages)).toEqual([
      [0.5, 0, 0.5],
      [0, 0, 0],
    ]);
  });

  /** Rejected tokens: the last one of the first sample, and the first one of the second sample. */
  const oldLogProbs = [
    [-1, -1, -9],
    [-9, -1, -1],
  ];
  const refLogProbs = [
    [-1, -1.5, -10],
    [-9, -1, -1.5],
  ];
  const rolloutCorrection = { rolloutRs: 'token_k1', rolloutRsThreshold: 2 };
  const kl = { useKlInReward: true, klCtrl: { klCoef: 1 } };
  const pair = () => [1, 0].map((score) => sample([1, 1, 1], { score, acc: score }));
  // Token rewards are [0, -0.5, 1 - 1] and [0, 0, -0.5]. With gamma 0.5, the returns to go are [-0.25, -0.5, 0] and [-0.125, -0.25, -0.5].

  test('reinforce_plus_plus: returns are over the sampled tokens, whitening over those that are left', () => {
    const config = configOf({ name: 'reinforce_plus_plus', gamma: 0.5, ...kl, rolloutCorrection });
    const { advantages } = stepTokens(config, pair(), { oldLogProbs, refLogProbs });
    const left = [-0.25, -0.5, -0.25, -0.5];
    const std = Math.sqrt((4 * 0.125 ** 2) / 3 + 1e-8);
    const white = left.map((r) => (r + 0.375) / std);
    const want = [
      [white[0], white[1], 0],
      [0, white[2], white[3]],
    ];
    want.forEach((row, s) => row.forEach((a, t) => expect(advantages[s][t]).toBeCloseTo(a, 6)));
  });

  test('remax: the KL of a rejected token counts in the returns before it', () => {
    const config = configOf({ name: 'remax', ...kl, rolloutCorrection });
    const { advantages } = stepTokens(config, pair(), { oldLogProbs, refLogProbs, baselines: [0, 0] });
    expect(table(advantages)).toEqual([
      [-0.5, -0.5, 0],
      [0, -0.5, -0.5],
    ]);
  });
});

test('turn_loo: a turn without a reward counts as 0, and takes neither the outcome nor its KL with it', () => {
  const samples = [NaN, 0].map((none) => sample([1, 0, 1], { score: none === 0 ? 0 : 1, acc: 0, turns: [none, none] }));
  const { advantages } = stepTokens(configOf({ name: 'turn_loo' }), samples);
  expect(table(advantages)).toEqual([
    [1, 0, 1],
    [-1, 0, -1],
  ]);
});
