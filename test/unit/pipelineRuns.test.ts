/** Tests the asynchronous pipelines on a scripted engine: staleness, exact repetition, and that rollout continues during updates. */
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { CheckpointEngine } from '../../src/grpo/pipeline/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Checkpoint } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { registerAgentLoop } from '../../src/rollout/agent/loop.ts';
import { nextTask } from '../../src/rollout/agent/yield.ts';
import { keyedRng } from '../../src/tasks/random.ts';
import type { Task } from '../../src/tasks/task.ts';
import { defineTool } from '../../src/tasks/tool.ts';
import { readBack, scriptedEngine } from '../scriptedRuns.ts';
import type { TrainConfigInput } from '../../src/grpo/config/input.ts';

/** Waits for up to 60 turns of the event loop, a different number in each call. */
let calls = 0;
const slow = defineTool({
  name: 'slow',
  description: '',
  parameters: { type: 'object', properties: {} },
  async execute() {
    for (let turns = 60 * keyedRng('slow', calls++).uniform(); turns > 0; turns--) await nextTask();
    return 'so';
  },
});

registerAgentLoop('paced', async (sample) => {
  for (let turns = 1 + (Number(sample.input.problem.id) % 3); turns > 0; turns--) {
    const { stop } = await sample.generate({ maxNewTokens: 10 });
    if (stop && stop !== 'completed' && stop !== 'max_tokens') return stop;
    const ended = await sample.callTools([{ name: 'slow', args: {} }]);
    if (ended) return ended;
  }
  return 'completed';
});

const task: Task = {
  name: 'paced',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: () => [],
  tools: [slow],
  reward: ({ responseTokens, response }) => ({ score: (responseTokens + response.length) % 5, acc: 0 }),
};

const GROUPS = 4;
const configOf = (
  pipeline: NonNullable<TrainConfigInput['trainer']>['pipeline'],
  asyncTraining: TrainConfigInput['asyncTraining'] = {},
  steps = 5,
) =>
  resolveTrainConfig({
    name: 'pipelines',
    seed: 4,
    model: { path: 'in memory' },
    data: { trainBatchSize: GROUPS, maxPromptLength: 16, maxResponseLength: 64, valMaxSamples: 1 },
    rollout: { n: 3, maxNumSeqs: 12, agent: { defaultAgentLoop: 'paced' } },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256, optim: { lr: 1e-3 } },
    trainer: { pipeline, totalTrainingSteps: steps, testFreq: 0, saveFreq: 1, valBeforeTrain: false },
    asyncTraining,
  });

/** Runs on separate engines. */
async function run(
  config: ReturnType<typeof configOf>,
  { isShared = false, from }: { isShared?: boolean; from?: Checkpoint } = {},
) {
  const engine = scriptedEngine({ hasCopy: !isShared });
  const { checkpointEngine } = engine;
  const timed: CheckpointEngine | undefined = checkpointEngine && {
    backend: 'copy',
    updateWeights: async (version) => {
      await checkpointEngine.updateWeights(version);
      return { version, bytes: 3, seconds: 2, overlapSeconds: 1 };
    },
  };
  const steps: Sample[][] = [];
  const checkpoints: Checkpoint[] = [];
  const trainer = new GrpoTrainer({
    config,
    task,
    engine: Object.assign(engine, timed && { checkpointEngine: timed }),
    onStep: (_, samples) => void steps.push(samples),
    onCheckpoint: (checkpoint) => void checkpoints.push(checkpoint),
  });
  if (from) await trainer.restore(from);
  const { history } = await trainer.fit();
  return { history, steps, checkpoints };
}

/** Removes metrics that depend on time: durations, and how far rollout was when a step was taken. */
const exact = (history: Metrics[]) =>
  history.map((metrics) =>
    Object.fromEntries(
      Object.entries(metrics).filter(
        ([name]) => !/^timing|^perf\/|idle_ratio$|^fully_async\/(monitor|count\/total_generated)/.test(name),
      ),
    ),
  );
const groupsOf = (steps: Sample[][]) => steps.flatMap((samples) => [...new Set(samples.map(({ group }) => group))]);
const column = (history: Metrics[], name: string) => history.map((metrics) => metrics[name]);
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i);

test('one-step-off: samples are one step old from the second step; a checkpoint repeats the rest', async () => {
  const config = configOf('one-step-off');
  const first = await run(config);
  expect(column(first.history, 'training/off_policy/age/max')).toEqual([0, 1, 1, 1, 1]);
  expect(column(first.history, 'training/stale_tokens_share')).toEqual([0, 1, 1, 1, 1]);
  expect(groupsOf(first.steps)).toEqual(upTo(5 * GROUPS));
  // The first batch is generated with the same weights that are trained, so its log-probs are equal. Later batches have log-probs of older
  // weights.
  const differences = column(first.history, 'training/rollout_probs_diff_max');
  expect(differences[0]).toBe(0);
  expect(Math.min(...differences.slice(1))).toBeGreaterThan(0);

  const rest = await run(config, { from: readBack(first.checkpoints[1]) });
  expect(exact(rest.history)).toEqual(exact(first.history.slice(2)));
  expect([...rest.checkpoints.at(-1)!.weights]).toEqual([...first.checkpoints.at(-1)!.weights]);
});

test('fully-async on shared weights: requests in flight continue after each update, and every group is trained on once', async () => {
  const config = configOf('fully-async', { stalenessThreshold: 1 }, 6);
  const { history, steps, checkpoints } = await run(config, { isShared: true });
  const dropped = history.at(-1)!['fully_async/count/dropped_stale_samples'];
  expect(groupsOf(steps)).toHaveLength(6 * GROUPS);
  expect(new Set(groupsOf(steps)).size).toBe(6 * GROUPS);
  expect(Math.max(...groupsOf(steps))).toBeLessThan(6 * GROUPS + dropped);
  expect(Math.max(...column(history, 'fully_async/partial/total_partial_num'))).toBeGreaterThan(0);
  expect(Math.max(...column(history, 'training/off_policy/age/max'))).toBeLessThanOrEqual(2);
  for (const name of ['trainer/idle_ratio', 'rollouter/idle_ratio'])
    for (const share of column(history, name)) expect([share >= 0, share <= 1]).toEqual([true, true]);

  const rest = await run(config, { isShared: true, from: readBack(checkpoints[2]) });
  const all = [...groupsOf(steps.slice(0, 3)), ...groupsOf(rest.steps)];
  expect(new Set(all).size).toBe(6 * GROUPS);
});

test('stream off-policy: weights are synced every other step', async () => {
  const config = configOf('fully-async', { stalenessThreshold: 0, triggerParameterSyncStep: 2 }, 4);
  const { history, steps } = await run(config);
  expect(column(history, 'training/off_policy/age/max')).toEqual([0, 1, 0, 1]);
  expect(column(history, 'fully_async/count/current_param_version')).toEqual([0, 0, 2, 2]);
  ['perf/sync_bytes', 'perf/sync_s', 'perf/sync_overlap_s'].forEach((name, i) =>
    expect(column(history, name)).toEqual([0, 3 - i, 0, 3 - i]),
  );
  expect(groupsOf(steps).sort((a, b) => a - b)).toEqual(upTo(4 * GROUPS));
});

test('decoupled: log-probs of the policy before the update are weighted against those of the rollout', async () => {
  const config = configOf('one-step-off', {}, 3);
  config.algorithm.rolloutCorrection = {
    ...config.algorithm.rolloutCorrection,
    rolloutIs: 'token',
    bypassMode: false,
  };
  const { history } = await run(config);
  expect(history[0]['rollout_corr/kl']).toBe(0);
  expect(Math.abs(history[1]['rollout_corr/kl'])).toBeGreaterThan(0);
  expect(history[1]['rollout_corr/rollout_is_max']).toBeGreaterThan(1);
});
