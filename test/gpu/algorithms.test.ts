/** Runs one complete step with every algorithm that a config can name on a tiny model: generate, advantages, fused loss, update. */
import { beforeAll, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { initWeights } from '../../src/model/params.ts';
import type { Reward, ScoredSample, SyncTask, Task } from '../../src/tasks/task.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import type { ModelEngine } from '../../src/model/engine.ts';
import { isFull } from './full.ts';
import { chatConfig, tinySpec } from './tinySpec.ts';
import { throughJson } from '../json.ts';

/** The task rewards a property that differs between samples, so that rewards within each group differ. */
const task: SyncTask = {
  name: 'length',
  train: (index) => ({ id: `train-${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => ({ id: `held-${i}`, messages: [], answer: '' })),
  reward: ({ response, responseTokens }: ScoredSample): Reward => {
    const digits = response.replace(/[^0-9]/g, '').length;
    return { score: digits + responseTokens / 7, acc: digits > 2 ? 1 : 0, extra: { digits, tokens: responseTokens } };
  },
};

const configOf = (algorithm: object, actor: object = {}, reward: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 12, valMaxSamples: 1 },
    rollout: { n: 4, maxNumSeqs: 8 },
    actor: { ppoMiniBatchSize: 1, ppoMaxTokenLenPerGpu: 80, optim: { lr: 1e-3 }, ...actor },
    algorithm: { filterGroups: { enable: false }, ...algorithm },
    reward,
    trainer: { totalTrainingSteps: 1 },
  });

let engine: LocalEngine;
beforeAll(async () => {
  engine = await createLocalEngine(tinySpec(configOf({}, { useKlLoss: true })));
});

/** Initial weights of every run, so that runs can be compared. */
const START = initWeights(chatConfig, 3);

async function restart(): Promise<void> {
  await engine.model.importWeights(START);
  const moments = await engine.model.exportOptimizer();
  for (const { data } of moments.values()) data.fill(0);
  await engine.model.importOptimizer(moments);
  await engine.rollout.resetCache();
}

async function oneStep(algorithm: object, actor: object = {}, reward: object = {}) {
  const before = await embeddings(engine.model);
  const trainer = new GrpoTrainer({ config: configOf(algorithm, actor, reward), task, engine });
  const { metrics } = await trainer.step();
  const after = await embeddings(engine.model);
  for (const [name, value] of Object.entries(metrics)) expect(Number.isFinite(value), `${name} is ${value}`).toBe(true);
  expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
  expect(metrics['actor/skipped_updates']).toBe(0);
  expect(after.some((w, i) => w !== before[i])).toBe(true);
  return metrics;
}

const EMBEDDINGS = 'model.embed_tokens.weight';
const embeddings = async (model: ModelEngine) => (await model.exportWeights()).get(EMBEDDINGS)!.data.slice();

/**
 * Every day recipes whose advantages need more than scores, and losses by rows that no stored curve has. Unit tests compare the numbers of
 * every recipe, policy_loss.test.ts runs every loss on the device.
 */
const EVERY_DAY = ['remax', 'gdpo', 'kl_cov', 'gmpo', 'turn_loo', 'dppo_tv'];
test.each(isFull ? Object.keys(RECIPES) : EVERY_DAY)('%s', async (name) => {
  await oneStep({ name });
});

test('KL in the reward, adaptive, with overlong shaping', async () => {
  const klCtrl = { type: 'adaptive', klCoef: 0.5 };
  const metrics = await oneStep({ useKlInReward: true, klCtrl }, {}, { overlongBuffer: { len: 8 } });
  expect(metrics['actor/reward_kl_penalty_coeff']).toBe(0.5);
  expect(metrics['critic/rewards/mean']).toBeLessThan(metrics['critic/score/mean']);
});

test('KL in the loss', async () => {
  const metrics = await oneStep({}, { klLossCoef: 0.1, klLossType: 'r*k3' });
  expect(metrics['actor/kl_loss']).toBeGreaterThan(0);
});

const isTime = (name: string) => name.startsWith('timing') || name.startsWith('perf/');
const steady = (metrics: Record<string, number>) =>
  Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTime(name) && !name.startsWith('rollout_corr/')));

test("decoupled: the recomputed log-probs are the sampler's own, so weights of 1 change nothing", async () => {
  await restart();
  const plain = await oneStep({});
  await restart();
  const decoupled = await oneStep({
    rolloutCorrection: { rolloutIs: 'sequence', rolloutRs: 'seq_sum_k1', rolloutRsThreshold: '0.9_1.1' },
  });
  expect(steady(decoupled)).toEqual(steady(plain));
  expect(decoupled['rollout_corr/rollout_is_mean']).toBeCloseTo(1, 7);
  expect(decoupled['rollout_corr/kl']).toBe(0);
  expect(decoupled['rollout_corr/rollout_rs_masked_fraction']).toBe(0);
  expect(decoupled['timing_s/old_log_prob']).toBeGreaterThan(0);
});

/** Large steps, so that the second mini-batch is off policy. */
const far = { optim: { lr: 0.05 } };

test.each([
  ['reinforce', { rolloutIs: 'token', rolloutIsThreshold: '0.8_1.25', bypassMode: true }, 'rollout_is_oob_ratio'],
  [
    'reinforce',
    { rolloutIs: 'sequence', rolloutIsBatchNormalize: true, bypassMode: true },
    'rollout_is_batch_norm_factor',
  ],
  ['grpo', { rolloutRs: 'token_k2', rolloutRsThreshold: 0.01, bypassMode: true }, 'rollout_rs_masked_fraction'],
  ['gspo', { rolloutRs: 'token_k1', rolloutRsThreshold: '0.9_1.1', bypassMode: true }, 'rollout_rs_masked_fraction'],
])('bypass mode, %s with %o', async (name, rolloutCorrection, metric) => {
  await restart();
  const metrics = await oneStep({ name, rolloutCorrection }, far);
  expect(metrics[`rollout_corr/${metric}`]).toBeGreaterThan(0);
  expect(metrics['rollout_corr/k3_kl']).toBeGreaterThan(0);
});

test("weights computed on the host equal the kernel's", async () => {
  await restart();
  const fused = await oneStep({ name: 'reinforce' }, far);
  await restart();
  // Rejection with limits that reject nothing, and weights within IcePop's bounds. The code of the correction still runs.
  const correction = {
    rolloutIs: 'token',
    rolloutIsThreshold: '1e-9_1e9',
    rolloutRs: 'token_k2',
    rolloutRsThreshold: 1e9,
  };
  const loose = { rolloutIs: 'token', rolloutIsThreshold: 1e9 };
  const host = await oneStep({ name: 'reinforce', rolloutCorrection: { ...correction, bypassMode: true } }, far);
  await restart();
  const kernel = await oneStep({ name: 'reinforce', rolloutCorrection: loose }, far);
  expect(host['actor/grad_norm']).toBeCloseTo(kernel['actor/grad_norm'], 4);
  expect(kernel['actor/grad_norm']).not.toBe(fused['actor/grad_norm']);
});

test('OPSM and the top-entropy mask drop policy gradients, not tokens', async () => {
  await restart();
  const metrics = await oneStep(
    { rolloutCorrection: { offPolicyMaskThreshold: 0.001 } },
    { ...far, topEntropyQuantile: 0.25 },
  );
  expect(metrics['actor/opsm_kept']).toBeLessThan(1);
  expect(metrics['actor/opsm_kept']).toBeGreaterThanOrEqual(0.5);
  expect(metrics['actor/top_entropy_kept']).toBeGreaterThan(0.2);
  expect(metrics['actor/top_entropy_kept']).toBeLessThan(0.35);
});

test('the entropy bonus follows its target, update by update as in TRL', async () => {
  await restart();
  const actor = { entropyCoeff: 0.25, entropyTarget: 100, entropyCoeffDelta: 0.5, entropyCoeffMax: 2 };
  const trainer = new GrpoTrainer({ config: configOf({}, actor), task, engine });
  const seen = [await trainer.step(), await trainer.step(), await trainer.step()];
  // Like TRL: the last entropy is infinite before the first update, so the first update has no entropy bonus. Afterwards the bonus's
  // weight rises with each update.
  const applied = [0, 0.75, 1.25, 1.75, 2, 2];
  const want = [0, 1, 2].map((step) => (applied[2 * step] + applied[2 * step + 1]) / 2); // two updates per step
  expect(seen.map(({ metrics }) => metrics['actor/entropy_coeff'])).toEqual(want);
  expect(trainer.state.entropy).toEqual({ coeff: 2, acts: true });
});

test('the reference is updated, and a checkpoint contains it', async () => {
  await restart();
  const config = configOf({}, { klLossCoef: 0.1 });
  Object.assign(config.trainer, { refUpdateFreq: 2, refMixupAlpha: 0.5 });
  const trainer = new GrpoTrainer({ config, task, engine });
  const reference = engine.reference!;
  const start = await embeddings(reference);
  await trainer.step();
  expect(await embeddings(reference)).toEqual(start);
  await trainer.step();
  const policy = await embeddings(engine.model);
  const saved = (await trainer.checkpoint()).reference?.get(EMBEDDINGS)?.data[7];
  expect(saved).toBeCloseTo((policy[7] + start[7]) / 2, 6);
  await reference.importWeights(START);
});

test('rae: the baselines of roles are restored from a checkpoint', async () => {
  await restart();
  const roles: SyncTask = {
    ...task,
    train: (index) => ({ ...task.train(index, 1), role: index % 2 ? 'second' : 'first' }),
  };
  const config = configOf({ name: 'rae', raeDecay: 0.5 });
  const trainer = new GrpoTrainer({ config, task: roles, engine });
  await trainer.step();
  const { roleBaselines = {} } = trainer.state;
  expect(Object.keys(roleBaselines)).toEqual(['first', 'second']);
  const again = new GrpoTrainer({ config, task: roles, engine });
  await again.restore(await trainer.checkpoint());
  const { samples } = await again.step();
  expect(samples[0].advantage).toBeCloseTo(samples[0].reward.score - roleBaselines.first, 5);
  expect(samples[4].advantage).toBeCloseTo(samples[4].reward.score - roleBaselines.second, 5);
});

test("a user's own advantage", async () => {
  await restart();
  const advantage = ({ rewards, masks }: { rewards: ArrayLike<number>; masks: readonly ArrayLike<number>[] }) =>
    masks.map((mask, s) => Float64Array.from(mask, (m) => m * (rewards[s] - 3)));
  const { metrics } = await new GrpoTrainer({ config: configOf({}), task, engine, advantage }).step();
  expect(metrics['critic/advantages/max']).toBeCloseTo(metrics['critic/score/max'] - 3, 5);
});

test('dynamic sampling replaces every filtered group by a new prompt, up to its limit', async () => {
  await restart();
  let scored = 0;
  const reward: Task['reward'] = ({ problem }) => ({ score: 1, acc: problem.id === 'train-1' ? scored++ % 2 : 1 });
  const filterGroups = { enable: true, maxNumGenBatches: 3 };
  const trainer = new GrpoTrainer({
    config: configOf({ name: 'dapo', filterGroups }),
    task: { ...task, reward },
    engine,
  });
  const { metrics, samples } = await trainer.step();
  expect(metrics['training/num_gen_prompts']).toBe(6);
  expect(metrics['training/num_gen_batches']).toBe(5); // 2 prompts, then 1 at a time
  expect(metrics['training/evicted_groups']).toBe(5);
  expect(new Set(samples.map(({ problem }) => problem.id))).toEqual(new Set(['train-1']));
});

test('replay trains off policy if the step has no signal, and resumes from a checkpoint', async () => {
  /** Samples of a problem differ in score in the first step, and have equal scores afterwards. */
  const reward: Task['reward'] = (sample) => ({
    score: Number(sample.problem.id.split('-')[1]) < 2 ? sample.responseTokens + sample.response.length : 1,
    acc: 0,
  });
  const run = async (replayBufferSize: number, resume: boolean) => {
    await restart();
    const options = {
      config: configOf({ replayBufferSize }, { optim: { lr: 0.01 } }),
      task: { ...task, reward },
      engine,
    };
    let trainer = new GrpoTrainer(options);
    const first = await trainer.step();
    if (resume) {
      const { state, ...tensors } = await trainer.checkpoint();
      trainer = new GrpoTrainer(options);
      await trainer.restore({ ...tensors, state: throughJson(state) });
    }
    const before = await embeddings(engine.model);
    const second = await trainer.step();
    const after = await embeddings(engine.model);
    const moved = after.reduce((sum, w, i) => sum + Math.abs(w - before[i]), 0);
    return { first, second, moved };
  };
  const without = await run(0, false);
  expect(without.second.metrics['actor/grad_norm']).toBe(0);
  const { first, second, moved } = await run(8, false);
  expect(second.metrics['actor/grad_norm']).toBeGreaterThan(0);
  expect(Math.abs(moved / without.moved - 1)).toBeGreaterThan(0.01); // the remaining steps are by Adam's moments alone
  expect(second.metrics['training/replayed_groups']).toBe(2);
  expect(second.metrics['training/replay_age']).toBe(1);
  expect(second.metrics['actor/ppo_kl']).not.toBe(0); // samples of the first update, under the policy after that update
  expect(second.metrics['critic/score/max']).toBe(1); // computed from the step's own samples, not from the replayed ones
  const drawnFirst = new Map(first.samples.map(({ trajectory }) => [trajectory.responseIds.join(), trajectory]));
  for (const { trajectory } of second.samples)
    expect(trajectory.logProbs).toEqual(drawnFirst.get(trajectory.responseIds.join())!.logProbs);
  expect(steady((await run(8, true)).second.metrics)).toEqual(steady(second.metrics));
});
