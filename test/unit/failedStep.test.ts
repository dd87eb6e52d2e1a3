/**
 * Tests that a failed step ends everything that it started: the same engine continues immediately, bit for bit as an engine without the
 * failure.
 */
import { beforeAll, describe, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { GrpoTrainerOptions } from '../../src/grpo/trainerOptions.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import type { SyncTask, Task } from '../../src/tasks/task.ts';
import { scriptedEngine } from '../scriptedRuns.ts';

type Settings = Record<string, Record<string, unknown>>;

const configOf = (more: Settings = {}) =>
  resolveTrainConfig({
    name: 'failed',
    seed: 3,
    model: { path: 'in memory' },
    data: { trainBatchSize: 4, maxResponseLength: 24, maxPromptLength: 64, valMaxSamples: 4 },
    rollout: { n: 4, maxNumSeqs: 7, ...more['rollout'] },
    actor: { ppoMiniBatchSize: 4, ppoMaxTokenLenPerGpu: 128, useKlLoss: true, klLossCoef: 0.01, ...more['actor'] },
    trainer: { totalTrainingSteps: 5 },
    ...(more['algorithm'] && { algorithm: more['algorithm'] }),
  });

/** Number of calls before the fault, which happens only once. */
let untilFault = Infinity;
const mayFail = (): void => {
  if (--untilFault === 0) throw new Error('the fault');
};

const task: SyncTask = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => task.train(1000 + i, 0)),
  reward: ({ response }) => ({ score: response.length % 7, acc: response.length % 2 }),
};
const failingReward: Task = { ...task, reward: (sample) => (mayFail(), task.reward(sample)) };
/** All samples of every second group are right, so filterGroups removes these groups. */
const halfEqual: Task['reward'] = (sample) =>
  Number(sample.problem.id) % 2 === 0 ? { score: 1, acc: 1 } : task.reward(sample);

registerAgentLoop('fails', async (sample) => {
  const turn = await sample.generate({ maxNewTokens: 3 });
  mayFail();
  if (turn.stop) return turn.stop;
  return (await sample.generate()).stop ?? 'completed';
});
registerAgentLoop('leaves', async (sample) => {
  const turn = sample.generate();
  if (--untilFault === 0) {
    turn.catch(() => {});
    throw new Error('the fault');
  }
  return (await turn).stop ?? 'completed';
});

const engine = scriptedEngine({ withReference: true });
let start: { weights: TensorMap; optimizer: TensorMap };
beforeAll(async () => {
  start = { weights: await engine.model.exportWeights(), optimizer: await engine.model.exportOptimizer() };
});

async function fresh(options: Partial<GrpoTrainerOptions> = {}, settings?: Settings): Promise<GrpoTrainer> {
  const trainer = new GrpoTrainer({ config: configOf(settings), task, engine, ...options });
  await trainer.restore({ ...start, state: { step: 0, updates: 0, problems: 0 } });
  return trainer;
}

const seen = ({ samples, metrics }: { samples: Sample[]; metrics: Record<string, number> }) => ({
  tokens: samples.map(({ problem, trajectory }) => [problem.id, [...trajectory.responseIds], [...trajectory.logProbs]]),
  norm: metrics['actor/grad_norm'],
  generated: metrics['response_length/mean'],
});

const twoSteps = async (trainer: GrpoTrainer) => [seen(await trainer.step()), seen(await trainer.step())];

interface Case {
  at: number;
  options?: Partial<GrpoTrainerOptions>;
  settings?: Settings;
}

const CASES: Record<string, Case> = {
  'a reward throws at the first sample': { at: 1, options: { task: failingReward } },
  'a reward throws at the last sample': { at: 16, options: { task: failingReward } },
  'a loop throws between two turns': { at: 3, settings: { rollout: { agent: { defaultAgentLoop: 'fails' } } } },
  'a loop leaves its request behind': { at: 2, settings: { rollout: { agent: { defaultAgentLoop: 'leaves' } } } },
  'a listener throws': { at: 5, options: { onSample: mayFail } },
  'a second batch for filtered groups fails': {
    at: 18,
    options: { task: { ...task, reward: (sample) => (mayFail(), halfEqual(sample)) } },
    settings: { algorithm: { name: 'dapo' } },
  },
  'greedy baselines fail': {
    at: 18,
    options: { task: failingReward },
    settings: { algorithm: { name: 'grpo', advEstimator: 'remax' } },
  },
  'an advantage throws': {
    at: 1,
    options: {
      advantage: (_, samples) => {
        mayFail();
        return samples.map(({ trajectory, reward }) => [...trajectory.responseIds].map(() => reward.score - 3));
      },
    },
  },
  'a loss throws': {
    at: 1,
    options: {
      loss: ({ logProbs }) => {
        mayFail();
        return { dLogProbs: logProbs.map((_, i) => (i % 3) - 1) };
      },
    },
  },
};

describe.each(Object.entries(CASES))('%s', (_, { at, options = {}, settings }) => {
  test('the step after a failure is the same as without it', async () => {
    untilFault = Infinity;
    const undisturbed = await twoSteps(await fresh(options, settings));
    const trainer = await fresh(options, settings);
    untilFault = at;
    await expect(trainer.step()).rejects.toThrow('the fault');
    expect([...engine.rollout.held]).toEqual([]); // a slot that is not released is lost
    expect(await twoSteps(trainer)).toEqual(undisturbed);
  });
});

test('evaluations measure greedy answers if the best checkpoint depends on them', async () => {
  const greedy = 'val-core/length/acc/greedy';
  const measured = async (metricForBestModel: string) => {
    const config = configOf();
    Object.assign(config.trainer, { metricForBestModel, totalTrainingSteps: 3, testFreq: 1, valBeforeTrain: false });
    const { history } = await (await fresh({ config })).fit();
    return history.map((metrics) => greedy in metrics);
  };
  expect(await measured(greedy)).toEqual([true, true, true]);
  expect(await measured('val-core/length/acc/mean@1')).toEqual([false, false, true]);
});

test('the mean advantage is that of the tokens that are trained', async () => {
  // Every third reward is missing, so its sample is not trained.
  let rewards = 0;
  const some: Task = {
    ...task,
    reward: (sample) => (rewards++ % 3 === 0 ? { score: NaN, acc: 0 } : task.reward(sample)),
  };
  const { samples, metrics } = await (await fresh({ task: some })).step();
  const trained = samples.filter(({ reward }) => !Number.isNaN(reward.score));
  expect([trained.length, samples.length]).toEqual([10, 16]);
  const tokens = trained.flatMap(({ trajectory: { mask }, advantage = NaN }) =>
    [...mask].filter((m) => m === 1).map(() => Math.abs(advantage)),
  );
  expect(metrics['critic/advantages/abs_mean']).toBeCloseTo(tokens.reduce((a, b) => a + b) / tokens.length, 6);
});

test("ReMax's baseline has the penalty on an overlong answer", async () => {
  const config = configOf({ algorithm: { name: 'remax' } });
  const same: Task = { ...task, reward: () => ({ score: 1, acc: 1 }) };
  config.reward.overlongBuffer = { ...config.reward.overlongBuffer, len: 24 };
  const { samples } = await (await fresh({ config, task: same })).step();
  const lengths = samples.map(({ trajectory }) => trajectory.responseIds.length);
  const greedy = samples.map(({ advantage = NaN }, s) => advantage + lengths[s] / 24); // the penalty is the length / 24
  for (const group of new Set(samples.map((sample) => sample.group))) {
    const [first, ...others] = greedy.filter((_, s) => samples[s].group === group);
    for (const other of others) expect(other).toBeCloseTo(first, 6);
    expect(first * 24).toBeCloseTo(Math.round(first * 24), 4);
    expect(first).toBeGreaterThan(0);
  }
});

test('a reward that hangs in an evaluation is stopped by reward.timeoutS, also beside a judge', async () => {
  const config = { ...configOf(), reward: { ...configOf().reward, timeoutS: 0.05 } };
  config.reward.judge = { ...config.reward.judge, weight: 1 };
  const trainer = await fresh({ config, task: { ...task, reward: () => new Promise(() => {}) } });
  await expect(trainer.validate()).rejects.toThrow('did not resolve in 0.05 s (reward.timeoutS)');
});

test('an evaluation works after one that failed', async () => {
  untilFault = Infinity;
  const trainer = await fresh({ task: failingReward });
  const { 'timing_s/testing': _, ...accuracy } = await trainer.validate({ greedy: true });
  untilFault = 3;
  await expect(trainer.validate({ greedy: true })).rejects.toThrow('the fault');
  expect(await trainer.validate({ greedy: true })).toMatchObject(accuracy);
});
