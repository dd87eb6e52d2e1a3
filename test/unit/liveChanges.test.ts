/** Tests settings and rules that change during a run: a change equals a resume with that setting. */
import { beforeAll, beforeEach, expect, test } from 'vitest';
import type { TrainConfigInput } from '../../src/grpo/config/input.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { withSettings } from '../../src/grpo/live.ts';
import type { AsyncCustomLoss } from '../../src/grpo/losses/types.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { GrpoTrainerOptions } from '../../src/grpo/trainerOptions.ts';
import type { Checkpoint, LiveChange } from '../../src/grpo/types.ts';
import { parseTrainerState } from '../../src/runs/trainerState.ts';
import { calculator } from '../../src/tasks/tools/calculator.ts';
import type { Task } from '../../src/tasks/task.ts';
import { scriptedEngine } from '../scriptedRuns.ts';

const configOf = (actor: object = {}, rollout: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 256, maxResponseLength: 8, valMaxSamples: 2 },
    rollout: { n: 4, maxNumSeqs: 8, ...rollout },
    actor: { ppoMiniBatchSize: 1, ppoMaxTokenLenPerGpu: 512, optim: { lr: 1e-3 }, ...actor },
    trainer: { totalTrainingSteps: 4, testFreq: 0, valBeforeTrain: false },
  });
const task: Task = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '3' }),
  heldOut: () => [{ id: 'held', messages: [{ role: 'user', content: '1 plus 3' }], answer: '4' }],
  reward: ({ response, responseTokens }) => ({ score: response.length + responseTokens / 7, acc: 0 }),
};

const engine = scriptedEngine();
let start: Checkpoint;
beforeAll(async () => {
  start = await trainerOf().checkpoint();
});
beforeEach(() => trainerOf().restore(start));

const trainerOf = (options: Partial<GrpoTrainerOptions> = {}) =>
  new GrpoTrainer({ config: configOf(), task, engine, ...options });

async function steps(trainer: GrpoTrainer, count: number): Promise<void> {
  for (let i = 0; i < count; i++) await trainer.step();
}

/** Returns the checkpoint as files would contain it. */
const saved = ({ state, ...tensors }: Checkpoint): Checkpoint => ({
  ...tensors,
  state: parseTrainerState(JSON.stringify(state), 'state.json', undefined),
});

const settings = { 'actor.optim.lr': 3e-3, 'actor.clipRatioHigh': 0.1, 'rollout.temperature': 0.7 } as const;
const changed = configOf({ optim: { lr: 3e-3 }, clipRatioHigh: 0.1 }, { temperature: 0.7 });

test('a live change equals a resume with that setting, bit for bit, and is part of later checkpoints', async () => {
  const heard: LiveChange[] = [];
  const live = trainerOf({ onChange: (change) => void heard.push(change) });
  await steps(live, 2);
  const middle = await live.checkpoint();
  live.change({ 'actor.optim.lr': 1 });
  live.change(settings);
  await steps(live, 1);
  const later = await live.checkpoint();
  await steps(live, 1);
  const wanted = await live.checkpoint();
  expect(heard).toEqual([
    { step: 3, key: 'rollout.temperature', from: 1, to: 0.7 },
    { step: 3, key: 'actor.clipRatioHigh', from: 0.2, to: 0.1 },
    { step: 3, key: 'actor.optim.lr', from: 1e-3, to: 3e-3 },
  ]);
  expect(live.config).toEqual(changed);

  const resumed = trainerOf({ config: changed });
  await resumed.restore(saved(middle));
  await steps(resumed, 2);
  expect((await resumed.checkpoint()).weights).toEqual(wanted.weights);

  const again = trainerOf();
  await again.restore(saved(later));
  await steps(again, 1);
  expect(await again.checkpoint()).toEqual(wanted);

  const unchanged = trainerOf();
  await unchanged.restore(saved(middle));
  await steps(unchanged, 2);
  expect((await unchanged.checkpoint()).weights).not.toEqual(wanted.weights);
});

test('a value given at the resume overrides one that was changed live', async () => {
  const live = trainerOf();
  live.change({ 'actor.optim.lr': 3e-3 });
  await steps(live, 1);
  const resumed = trainerOf({ config: configOf({ optim: { lr: 7e-4 } }) });
  await resumed.restore(saved(await live.checkpoint()));
  expect(resumed.config.actor.optim.lr).toBe(7e-4);
});

test('settings that cannot change live are refused by name, and nothing is applied', async () => {
  const trainer = trainerOf();
  const change = (given: object) => trainer.change(given);
  expect(() => change({ 'rollout.n': 8 })).toThrow('"rollout.n" cannot change during a run; allowed:');
  expect(() => change({ 'actor.optim.lr': -1 })).toThrow('change: "actor.optim.lr" is -1; allowed: ');
  expect(() => change({ 'actor.optim.lr': 'fast' })).toThrow('change: "actor.optim.lr" is "fast"; allowed: ');
  expect(() => change({ 'actor.klLossCoef': 0.1 })).toThrow('this run was started without a reference');
  const entropic = trainerOf({ config: configOf({ entropyTarget: 1 }) });
  expect(() => entropic.change({ 'actor.entropyCoeff': 0.1 })).toThrow('follows actor.entropyTarget');
  await steps(trainer, 1);
  expect(trainer.config).toEqual(configOf());
  expect(trainer.state.changes).toBeUndefined();
});

test.each<Partial<TrainConfigInput>>([
  { rollout: { overSampleRate: 0.5, partialRollout: true } },
  { algorithm: { replayBufferSize: 8 } },
  { trainer: { pipeline: 'one-step-off' } },
])('the temperature cannot change if a step trains on tokens of earlier steps: %j', (more) => {
  const config = resolveTrainConfig({ name: 'late', model: { path: 'x' }, ...more });
  expect(() => withSettings(config, { 'rollout.temperature': 0.7 }, {})).toThrow('tokens of earlier steps');
  expect(withSettings(config, { 'actor.optim.lr': 1e-5 }, {}).actor.optim.lr).toBe(1e-5);
});

test('a replaced reward is used in training but not in evaluations; undefined restores the original', async () => {
  const trainer = trainerOf({ task: { ...task, reward: () => ({ score: 0.25, acc: 1 }) } });
  const scores = async () => (await trainer.step()).metrics['critic/score/mean'];
  expect(await scores()).toBe(0.25);
  trainer.replace({ reward: async (sample) => ({ score: sample.responseTokens > 0 ? 7 : 0, acc: 0 }) });
  expect((await trainer.validate())['val-core/length/acc/mean@1']).toBe(1);
  expect(await scores()).toBe(7);
  expect((await trainer.validate())['val-core/length/acc/mean@1']).toBe(1);
  trainer.replace({ reward: undefined });
  trainer.replace({ tools: undefined }); // the rules of both calls are replaced
  expect(await scores()).toBe(0.25);
});

test('a replaced loss equals the loss of a trainer created with it; a loss of zeros changes weights only by moments', async () => {
  const loss: AsyncCustomLoss = async ({ weights, advantages }) => ({
    dLogProbs: weights.map((weight, e) => -weight * advantages[e]),
  });
  const given = trainerOf({ loss });
  await steps(given, 2);
  const wanted = (await given.checkpoint()).weights;
  const replaced = trainerOf();
  await replaced.restore(start);
  replaced.replace({ loss });
  await steps(replaced, 2);
  expect((await replaced.checkpoint()).weights).toEqual(wanted);
});

test('replaced tools are in the prompt of the next step, and in evaluations', async () => {
  const config = configOf({}, { multiTurn: { toolSchemasInPrompt: true } });
  const prompts: number[] = [];
  const trainer = trainerOf({ config });
  const promptOf = async () => (await trainer.step()).samples[0].trajectory.promptIds.length;
  prompts.push(await promptOf());
  trainer.replace({ tools: [calculator] });
  prompts.push(await promptOf());
  trainer.replace({ tools: undefined });
  prompts.push(await promptOf());
  expect(prompts[1]).toBeGreaterThan(prompts[0]);
  expect(prompts[2]).toBe(prompts[0]);
});
