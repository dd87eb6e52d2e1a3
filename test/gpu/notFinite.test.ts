/**
 * Tests steps with numbers that are not finite, or with equal rewards: such steps are reported, counted and saved. After three in a row the
 * run ends.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { NotFiniteError } from '../../src/errors.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Fault } from '../../src/grpo/health.ts';
import type { CustomLoss } from '../../src/grpo/losses/types.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { GrpoTrainerOptions } from '../../src/grpo/trainerOptions.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import type { Task } from '../../src/tasks/task.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { tinyConfig } from './tinyModel.ts';
import { tinySpec } from './tinySpec.ts';

const config = resolveTrainConfig({
  name: 'tiny',
  model: { path: 'x' },
  data: { trainBatchSize: 2, maxPromptLength: 32, maxResponseLength: 6, valMaxSamples: 1 },
  rollout: { n: 2, maxNumSeqs: 4, agent: { defaultAgentLoop: 'single_turn' } },
  actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256 },
  trainer: { totalTrainingSteps: 7, testFreq: 0, valBeforeTrain: false },
});
const task: Task = {
  name: 'any',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: () => [],
  reward: ({ response }) => ({ score: response.length, acc: 0 }),
};
const model = { ...tinyConfig, vocabSize: 512, numHiddenLayers: 1 };
const nan: CustomLoss = ({ logProbs }) => ({ dLogProbs: logProbs.map(() => NaN), loss: NaN });
const fine: CustomLoss = ({ weights }) => ({ dLogProbs: weights });

let engine: LocalEngine;
let start: TensorMap;
beforeAll(async () => {
  engine = await createLocalEngine(tinySpec(config, model));
  start = await engine.model.exportWeights();
});
beforeEach(() => engine.model.importWeights(start));
afterAll(() => engine.destroy());

function trainerOf(options: Partial<GrpoTrainerOptions> = {}) {
  const faults: Fault[] = [];
  const steps: number[] = [];
  const onFault = (fault: Fault) => void faults.push(fault);
  const onStep: GrpoTrainerOptions['onStep'] = (metrics) => void steps.push(metrics['training/not_finite'] ?? 0);
  return { faults, steps, trainer: new GrpoTrainer({ config, task, engine, onFault, onStep, ...options }) };
}

test('a loss of NaN: three steps are reported with their inputs, then fit rejects with the last good weights', async () => {
  const { trainer, faults, steps } = trainerOf({ loss: nan });
  const error: unknown = await trainer.fit().catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(NotFiniteError);
  expect((error as NotFiniteError).step).toBe(3);
  expect((error as NotFiniteError).message).toMatch(
    /^3 steps in a row had numbers that are not finite, the last of them step 3: actor\/pg_loss is NaN, actor\/grad_norm is NaN, all 1 updates were skipped, .* Lower actor\.optim\.lr \(/,
  );
  expect(steps).toEqual([1, 1, 1]);
  expect(faults.map(({ step }) => step)).toEqual([1, 2, 3]);
  expect(faults[0].reason).toMatch(/^Step 1 has numbers that are not finite: actor\/pg_loss is NaN/);
  const [head, ...samples] = faults[0].inputs as Record<string, unknown>[];
  expect(head).toMatchObject({
    step: 1,
    samples: 4,
    kept: 4,
    metrics: { 'actor/pg_loss': 'NaN' },
    config: { seed: 1 },
  });
  expect(samples).toHaveLength(4);
  const { responseIds, mask, logProbs, advantages } = samples[0] as Record<string, number[]>;
  expect([mask, logProbs, advantages].map(({ length }) => length)).toEqual(Array(3).fill(responseIds.length));
  expect(logProbs[0]).toBeLessThan(0);
  expect((await trainer.checkpoint()).weights).toEqual(start);
});

test('two such steps followed by one that trains do not end the run', async () => {
  let asked = 0;
  const { trainer, faults } = trainerOf({ loss: (rows) => (asked++ < 2 ? nan : fine)(rows) });
  expect((await trainer.fit()).state.step).toBe(7);
  expect(faults.map(({ step }) => step)).toEqual([1, 2]);
});

test('advantages that are not finite in float32 change no weight, whatever the kernels compute from them', async () => {
  for (const value of [NaN, 1e200]) {
    const advantage: GrpoTrainerOptions['advantage'] = ({ masks }) =>
      masks.map((mask, s) => Array.from(mask, () => (s === 1 ? value : 1)));
    const { trainer, faults } = trainerOf({ advantage });
    const { metrics } = await trainer.step();
    expect(metrics['training/not_finite']).toBe(1);
    expect(faults[0].reason).toMatch(/the advantage of token 0 is (NaN|1e\+200) \(problem "0", sample 1\)\.$/);
    expect(await engine.model.exportWeights()).toEqual(start);
  }
});

test('weights of NaN are reported immediately and never returned', async () => {
  const [name] = start.keys();
  const huge = { lr: 3e38, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 10, gradClip: 1 };
  await engine.model.optimizerStep(huge); // without a gradient, the weight decay makes them infinite
  const { trainer, faults } = trainerOf();
  await expect(trainer.fit()).rejects.toThrow("the sampler's log-prob of token 0 is NaN");
  expect(faults).toHaveLength(3);
  await expect(trainer.checkpoint()).rejects.toThrow(
    `After step 3 the weights are not finite ("${name}"). Lower actor.`,
  );
});

test('equal rewards are reported once, after five steps, and counted across a resume', async () => {
  const equal: Task = { ...task, reward: () => ({ score: 0.5, acc: 0 }) };
  const { trainer, faults } = trainerOf({ task: equal });
  const counts = [];
  for (let i = 0; i < 6; i++) counts.push((await trainer.step()).metrics['training/steps_without_signal']);
  expect(counts).toEqual([1, 2, 3, 4, 5, 6]);
  expect(faults.map(({ step, inputs }) => [step, inputs])).toEqual([[5, undefined]]);
  expect(faults[0].reason).toMatch(
    /^The run has stopped learning: in the last 5 steps all samples .* \(mean score 0\.500\)/,
  );
  const again = trainerOf({ task: equal }).trainer;
  await again.restore(await trainer.checkpoint());
  expect((await again.step()).metrics['training/steps_without_signal']).toBe(7);
  const good = trainerOf().trainer;
  expect((await good.step()).metrics).not.toHaveProperty('training/steps_without_signal');
  expect(good.state.parts).toBeUndefined();
});
