/** Tests rubrics with real judge models: the reference policy, another checkpoint next to the policy, and a model of transformers.js. */
import * as Comlink from 'comlink';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';

import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import { referenceForward, toFloat64 } from '../../src/extensions/verify/reference/model.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import type { RubricInput } from '../../src/grpo/config/schema/reward.ts';
import { parseRubric } from '../../src/extensions/rewards/rubric/parse.ts';
import { rubricReward } from '../../src/extensions/rewards/rubric/reward.ts';
import type { RubricJudge } from '../../src/extensions/rewards/rubric/judge.ts';
import type { ScoredSample, SyncTask } from '../../src/tasks/task.ts';
import { createEngineHost } from '../../src/workers/engineHost.ts';
import { createDeviceEngine, createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';
import { createRemoteEngine } from '../../src/workers/remoteEngine.ts';
import { writeGenerator } from '../onnxModels.ts';
import { isFull } from './full.ts';
import { chatConfig } from './tinySpec.ts';
import { workerAt } from '../stub.ts';
import { scored } from '../samples.ts';

vi.setConfig({ testTimeout: 240_000 });

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
const tokenizer = new ChatTokenizer(tokenizerJson, tokenizerConfigJson);
const FILES = { tokenizerJson, tokenizerConfigJson };
const MODEL = { ...chatConfig, headDim: 16, maxPositionEmbeddings: 256 };
const START = initWeights(MODEL, 3);
/** A judge model whose sizes differ from the policy's. */
const OTHER = { ...MODEL, hiddenSize: 24, numHiddenLayers: 2 };
const OTHER_WEIGHTS = initWeights(OTHER, 9);

/** Criteria with choices of one token and of several, a scale whose replies share prefixes, and a negative weight. */
const RUBRIC: RubricInput = {
  prompt: '{response}\n{criterion} {choices}?',
  criteria: [
    { name: 'short', description: 'Is it short', weight: 2 },
    { name: 'manner', description: 'How is it said', choices: { 'very well': 1, 'not so well': 0.3, badly: 0 } },
    { name: 'waste', description: 'How much of it is waste', choices: '9..11', weight: -1 },
  ],
};

const task: SyncTask = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => task.train(1000 + i, 1)),
  reward: ({ responseTokens }: ScoredSample) => ({ score: responseTokens % 5, acc: 0 }),
};

const configOf = (judge: object = {}, more: { model?: object; algorithm?: object } = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x', ...more.model },
    data: { trainBatchSize: 2, maxPromptLength: 16, maxResponseLength: 24, valMaxSamples: 1 },
    rollout: { n: 3, maxNumSeqs: 4 },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256, optim: { lr: 0.05 } },
    reward: { ruleWeight: 2, rubric: RUBRIC, judge: { maxPromptLength: 200, maxNumSeqs: 3, ...judge } },
    trainer: { totalTrainingSteps: 4 },
    ...(more.algorithm && { algorithm: more.algorithm }),
  });
type Config = ReturnType<typeof configOf>;
const judgeModel = { ...FILES, config: OTHER, weights: OTHER_WEIGHTS };
const specOf = (config: Config) => ({
  ...engineSizes(config),
  config: MODEL,
  weights: START,
  ...FILES,
  ...(config.reward.judge.checkpoint !== undefined && { judgeModel }),
});

/** A judge in float64 that computes every sequence completely: nothing is shared between replies, criteria or samples. */
const float64Judge = (config: typeof MODEL, weights: TensorMap): RubricJudge => ({
  tokenizer,
  logProbs: (groups) => {
    const exact = toFloat64(weights);
    const sums = groups.map(({ prompt, samples }) =>
      Float64Array.from(samples, (sample) => {
        const [{ batch }] = packGroups([{ prompt, samples: [sample] }], 1e6);
        return referenceForward(config, exact, batch).logProbs.reduce((sum, logp) => sum + logp, 0);
      }),
    );
    return Promise.resolve(sums);
  },
});

const scoredOf = ({ problem, messages, trajectory: { stopReason, responseIds } }: Sample): ScoredSample =>
  scored(messages.findLast(({ role }) => role === 'assistant')!.content, {
    ...{ problem, messages, stopReason, responseTokens: responseIds.length },
  });

/** Compares every number of every sample to float64. Returns the number of different scores. */
async function expectExact(samples: readonly Sample[], judge: RubricJudge, tolerance = 2e-5): Promise<number> {
  const exact = rubricReward(RUBRIC, { judge, maxPromptLength: 200 });
  const { criteria } = parseRubric(RUBRIC);
  const seen = new Set<number>();
  for (const sample of samples) {
    const want = await exact(scoredOf(sample));
    const rule = sample.trajectory.responseIds.length % 5;
    for (const { name, choices } of criteria) {
      const got = sample.reward.extra![name] as number;
      expect(Math.abs(got - (want.extra![name] as number))).toBeLessThan(tolerance);
      const [verdict] = (sample.reward.extra![`${name}_verdict`] as string).split(/ [\d.]+ \(mass /);
      expect(Object.keys(choices)).toContain(verdict);
      seen.add(got);
    }
    expect(sample.reward.score).toBeCloseTo(2 * rule + want.score, 3);
    expect(sample.reward.extra!['rule']).toBe(rule);
  }
  return seen.size;
}

const engines: LocalEngine[] = [];
afterAll(() => engines.splice(0).forEach((engine) => engine.destroy()));

async function trainerOf(config: Config) {
  const engine = await createLocalEngine(specOf(config));
  engines.push(engine);
  return { engine, trainer: new GrpoTrainer({ config, task, engine }) };
}

let onnx: string;
beforeAll(() => {
  onnx = mkdtempSync(join(tmpdir(), 'webgrpo-rubric-'));
  const files = { tokenizer: tokenizerJson, config: tokenizerConfigJson };
  writeGenerator(onnx, MODEL, initWeights(MODEL, 9), files, tokenizer.eosTokenIds[0]);
});

test.each([
  ['the reference', {}, {}, MODEL, START],
  // Every day judge.test.ts judges by the base under adapters, and the test of a worker by another checkpoint.
  ...(isFull
    ? ([
        ['the base under adapters', {}, { model: { loraRank: 4 } }, MODEL, START],
        ['another checkpoint', { checkpoint: 'other' }, {}, OTHER, OTHER_WEIGHTS],
      ] as const)
    : []),
] as const)('%s decides as float64 does, and a step makes nothing new', async (_, judge, more, config, weights) => {
  const { engine, trainer } = await trainerOf(configOf(judge, more));
  expect(engine.judge).toBeUndefined();
  const made = () => {
    const { buffers, bytes, pipelines, bindGroups } = engine.gpu.counters;
    return { buffers, bytes, pipelines, bindGroups };
  };
  await trainer.step();
  const { samples, metrics } = await trainer.step();
  const before = made();
  expect(await expectExact(samples, float64Judge(config, weights))).toBeGreaterThan(9);
  for (const name of ['short', 'manner', 'waste', 'rule', 'rubric_mass'])
    expect(metrics[`reward/${name}/mean`]).toBeTypeOf('number');
  await trainer.step();
  expect(made()).toEqual(before);
});

test('a model of transformers.js agrees with float64', async () => {
  const { engine, trainer } = await trainerOf(configOf({ path: onnx }));
  expect(engine.reference).toBeUndefined();
  const { samples, metrics } = await trainer.step();
  expect(await expectExact(samples, float64Judge(MODEL, initWeights(MODEL, 9)))).toBeGreaterThan(9);
  expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
});

test('in a worker the judge has its own weights; gdpo normalises rule and criteria one by one', async () => {
  const config = configOf({ checkpoint: 'other' }, { algorithm: { name: 'gdpo' } });
  const { port1, port2 } = new MessageChannel();
  Comlink.expose(createEngineHost(createDeviceEngine), port2);
  const remote = await createRemoteEngine(
    workerAt(port1, () => port1.close()),
    specOf(config),
  );
  const { samples } = await new GrpoTrainer({ config, task, engine: remote }).step();
  await expectExact(samples, float64Judge(OTHER, OTHER_WEIGHTS));
  expect(samples[0].reward.weights).toEqual({ rule: 2, short: 2, manner: 1, waste: -1 });
  await remote.destroy();
  port2.close();
});
