/**
 * Tests the trainer's numbers of each token, computed on request: training is unchanged, and the numbers equal the config's loss in
 * float64.
 */

import { afterAll, beforeAll, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { CustomLoss } from '../../src/grpo/losses/types.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { GrpoTrainerOptions } from '../../src/grpo/trainerOptions.ts';
import type { StepInputs } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { initWeights } from '../../src/model/params.ts';
import type { Task } from '../../src/tasks/task.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import { createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';
import { chatConfig } from './tinySpec.ts';

const [LOW, HIGH, DUAL] = [0.2, 0.28, 3];
/** Each problem is one mini-batch. The learning rate is so large that the second mini-batch is off policy beyond the clip. */
const config = resolveTrainConfig({
  name: 'tiny',
  model: { path: 'x' },
  data: { trainBatchSize: 3, maxPromptLength: 48, maxResponseLength: 12, valMaxSamples: 1 },
  rollout: { n: 4, maxNumSeqs: 8 },
  actor: {
    ppoMiniBatchSize: 1,
    ppoMaxTokenLenPerGpu: 160,
    clipRatioLow: LOW,
    clipRatioHigh: HIGH,
    clipRatioC: DUAL,
    optim: { lr: 0.02 },
  },
  algorithm: { name: 'grpo' },
  trainer: { totalTrainingSteps: 2, testFreq: 0, valBeforeTrain: false },
});

/** Every third problem has equal rewards in its group, so its samples are skipped. */
const task: Task = {
  name: 'lengths',
  train: (i) => ({ id: `p${i}`, messages: [{ role: 'user', content: `say ${i}` }], answer: String(i) }),
  heldOut: () => [],
  reward: ({ response, problem }) => ({ score: Number(problem.id.slice(1)) % 3 === 1 ? 1 : response.length, acc: 0 }),
};

const model = chatConfig;
const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
const files = { config: model, tokenizerJson, tokenizerConfigJson };
let engine: LocalEngine;
let moments: TensorMap;
beforeAll(async () => {
  engine = await createLocalEngine({ ...engineSizes(config), ...files, weights: initWeights(model, 3) });
  moments = await engine.model.exportOptimizer();
});
afterAll(() => engine.destroy());

interface SeenStep {
  metrics: Metrics;
  samples: Sample[];
  inputs: StepInputs;
}

/** Runs from the start. */
async function run(more: Partial<GrpoTrainerOptions> = {}) {
  await engine.model.importWeights(initWeights(model, 3));
  await engine.model.importOptimizer(moments);
  const steps: SeenStep[] = [];
  const onStep: GrpoTrainerOptions['onStep'] = (metrics, samples, inputs) =>
    void steps.push({ metrics, samples, inputs: inputs! });
  await new GrpoTrainer({ config, task, engine, onStep, ...more }).fit();
  return { steps, weights: await engine.model.exportWeights() };
}

const withoutTimes = (metrics: Metrics) =>
  Object.fromEntries(Object.entries(metrics).filter(([name]) => !/^(timing|perf)/.test(name)));

test('inspecting a run changes no bit of it, and a run without inspection returns no numbers', async () => {
  const plain = await run();
  const looked = await run({
    inspect: true,
    onStep: (_, samples, inputs) => expect(inputs!.updated!().ratio).toHaveLength(samples.length),
  });
  expect(looked.weights).toEqual(plain.weights);
  const again = await run({ inspect: true });
  expect(again.steps.map(({ metrics }) => withoutTimes(metrics))).toEqual(
    plain.steps.map(({ metrics }) => withoutTimes(metrics)),
  );
  expect(plain.steps.map(({ inputs }) => Object.keys(inputs))).toEqual([
    ['tokens', 'extras'],
    ['tokens', 'extras'],
  ]);
});

/** verl's GRPO in float64: (reward - mean of the group) / standard deviation of the group. */
function advantagesOf(samples: readonly Sample[]): number[] {
  return samples.map(({ group, reward }) => {
    const scores = samples.filter((other) => other.group === group).map((other) => other.reward.score);
    const mean = scores.reduce((a, b) => a + b) / scores.length;
    const variance = scores.reduce((sum, score) => sum + (score - mean) ** 2, 0) / (scores.length - 1);
    return (reward.score - mean) / (Math.sqrt(variance) + 1e-6);
  });
}

test('ratio, clip, advantage and gradient of each token are those of the config in float64', async () => {
  const { steps } = await run({ inspect: true });
  const ratios: number[] = [];
  let [clips, skipped] = [0, 0];
  for (const { samples, inputs } of steps) {
    const numbers = inputs.updated!();
    const advantages = advantagesOf(samples);
    for (const [s, { group, trajectory }] of samples.entries()) {
      // token-mean over the mini-batch, which here is one group
      const inGroup = samples.filter((other) => other.group === group).map((other) => other.trajectory);
      const count = inGroup.reduce((sum, { mask }) => sum + mask.reduce((a, b) => a + b, 0), 0);
      trajectory.mask.forEach((mask, t) => {
        const trained = mask === 1 && Math.abs(advantages[s]) > 1e-9;
        expect(numbers.trained[s][t]).toBe(trained ? 1 : 0);
        if (!trained) {
          skipped += mask;
          for (const name of ['ratio', 'grad', 'clipped', 'advantage'] as const) expect(numbers[name][s][t]).toBe(0);
          return;
        }
        const ratio = Math.exp(numbers.logProb[s][t] - trajectory.logProbs[t]);
        const clipped = advantages[s] > 0 ? ratio > 1 + HIGH : ratio < 1 - LOW || ratio > DUAL;
        ratios.push(ratio);
        clips += Number(clipped);
        expect(numbers.ratio[s][t]).toBeCloseTo(ratio, 10);
        expect(numbers.advantage[s][t]).toBeCloseTo(advantages[s], 5);
        expect(numbers.clipped[s][t] !== 0).toBe(clipped);
        expect(numbers.grad[s][t]).toBeCloseTo(clipped ? 0 : (-advantages[s] * ratio) / count, 5);
        expect(numbers.entropy[s][t]).toBeGreaterThan(0);
      });
    }
  }
  expect(clips, 'tokens that the clip holds').toBeGreaterThan(0);
  expect(skipped, 'tokens without an advantage').toBeGreaterThan(0);
  expect(new Set(ratios).size).toBeGreaterThan(10);
});

test("with a user's loss on this thread, the gradient is the one that it returned", async () => {
  const loss: CustomLoss = ({ weights, advantages }) => ({ dLogProbs: weights.map((w, e) => -2 * w * advantages[e]) });
  const { steps } = await run({ inspect: true, loss });
  const { grad, weight, advantage } = steps[0].inputs.updated!();
  grad.forEach((values, s) => values.forEach((g, t) => expect(g).toBeCloseTo(-2 * weight[s][t] * advantage[s][t], 6)));
  expect(grad.some((values) => values.some((g) => g !== 0))).toBe(true);
});
