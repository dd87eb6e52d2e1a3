/**
 * Replays a stored step: the run's own loss reproduces the logged numbers, and other losses give the gradients of the float64 reference.
 */

import { beforeAll, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { compareLosses, type NamedConfig } from '../../src/extensions/replay/compareLosses.ts';
import { decodeStep, encodeStep, type KeptStep } from '../../src/extensions/replay/keptStep.ts';
import { rescore } from '../../src/extensions/replay/rescore.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { gatherEntries, packMiniBatch } from '../../src/grpo/update/batch.ts';
import type { TensorMap } from '../../src/model/engine.ts';
import {
  referenceBackward,
  referenceForward,
  toFloat64,
  type Weights64,
} from '../../src/extensions/verify/reference/model.ts';
import type { Task } from '../../src/tasks/task.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { chatConfig, tinySpec } from './tinySpec.ts';

const configOf = (algorithm: object, actor: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 3, maxPromptLength: 48, maxResponseLength: 24, valMaxSamples: 1 },
    rollout: { n: 4, maxNumSeqs: 8, temperature: 1.1 },
    // Config with a KL term to the reference, several micro-batches, and a learning rate that moves the policy beyond the clip within one
    // step.
    actor: { ppoMiniBatchSize: 3, ppoMaxTokenLenPerGpu: 160, klLossCoef: 0.1, optim: { lr: 0.02 }, ...actor },
    algorithm,
    trainer: { totalTrainingSteps: 3 },
  });
const config = configOf({ name: 'grpo' });
const LOSSES: NamedConfig[] = [
  { name: 'run', config },
  ...['cispo', 'gspo', 'rloo'].map((name) => ({ name, config: configOf({ name }) })),
];

const task: Task = {
  name: 'even',
  train: (i) => ({ id: `p${i}`, messages: [{ role: 'user', content: `say ${i}` }], answer: String(i) }),
  heldOut: () => [],
  reward: ({ response, problem }) => ({
    score: response.length / 8 + (problem.id === 'p1' ? 1 : 0),
    acc: 0,
    extra: { n: response.length },
  }),
};

const model = chatConfig;
let engine: LocalEngine;
/** The stored step 2, its logged metrics, and the weights before and after its update. */
let [kept, metrics, before, after]: [KeptStep, Metrics, TensorMap, TensorMap] = [undefined!, {}, new Map(), new Map()];

beforeAll(async () => {
  engine = await createLocalEngine(tinySpec(config, model));
  const trainer = new GrpoTrainer({ config, task, engine });
  await trainer.step();
  before = await engine.model.exportWeights();
  const step = await trainer.step();
  after = await engine.model.exportWeights();
  metrics = step.metrics;
  kept = await decodeStep(await encodeStep({ step: 2, run: 'tiny', config: '' }, step.samples, step.inputs), 'step-2');
});

/** Returns the logged metrics that depend on the loss alone. The learning rate and the difference to rollout depend on the update. */
const ofLoss = (line: Metrics) =>
  Object.fromEntries(
    Object.entries(line).filter(([name]) => name.startsWith('actor/') && !/lr|skipped_|eff_sample|_probs_/.test(name)),
  );

test.each([
  ['AdamW', () => Promise.resolve(engine)],
  [
    'SignSGD, as in webgrpo replay',
    () => createLocalEngine({ ...tinySpec(config, model), optimizer: { name: 'SignSGD' } }),
  ],
])(
  "%s: the run's loss at its step's weights gives the logged numbers, bit for bit, and keeps the weights",
  async (_, open) => {
    const engine = await open();
    await engine.model.importWeights(before);
    const { losses } = await compareLosses(kept, LOSSES.slice(0, 1), engine);
    expect(ofLoss(losses[0].metrics)).toEqual(ofLoss(metrics));
    expect(Object.keys(ofLoss(metrics))).toEqual(
      expect.arrayContaining([
        'actor/pg_loss',
        'actor/grad_norm',
        'actor/pg_clipfrac',
        'actor/kl_loss',
        'actor/entropy',
      ]),
    );
    expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
    const { ratio, grad } = losses[0].tokens;
    expect(new Set(ratio.flatMap((all, s) => Array.from(all).filter((_, t) => grad[s][t] !== 0)))).toEqual(
      new Set([1]),
    );
    expect(await engine.model.exportWeights()).toEqual(before);
  },
);

/** Returns the cosines between the gradients of the losses, computed by the float64 model from each loss's d loss / d logp. */
function cosines64(weights: TensorMap, grads: Float64Array[][]): number[][] {
  const all = kept.samples.map((_, s) => s);
  const batch = packMiniBatch(
    kept.samples,
    all,
    kept.samples.map(({ trajectory }) => trajectory.mask),
    4096,
  );
  const [{ batch: packed }] = batch.microBatches;
  expect(batch.microBatches).toHaveLength(1);
  const w = toFloat64(weights);
  const temperature = { temperature: 1.1 };
  const forward = referenceForward(model, w, packed, temperature);
  const gradients = grads.map((grad) =>
    referenceBackward(model, w, packed, forward, { dLogProbs: gatherEntries(batch, grad) }, temperature),
  );
  const dot = (a: Weights64, b: Weights64) =>
    [...a].reduce((sum, [name, values]) => sum + values.reduce((s, x, i) => s + x * b.get(name)![i], 0), 0);
  return gradients.map((a) => gradients.map((b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b))));
}

test("off-policy tokens are clipped, and the cosines equal float64's, however many gradients are kept", async () => {
  await engine.model.importWeights(after);
  const { losses, cosines } = await compareLosses(kept, LOSSES, engine);
  expect(losses[0].metrics['actor/pg_clipfrac']).toBeGreaterThan(0.05);
  const clipped = losses.map(
    ({ tokens }) => tokens.clipped.flatMap((all) => Array.from(all)).filter((c) => c & 1).length,
  );
  const trained = losses.map(
    ({ tokens }) => tokens.weight.flatMap((all) => Array.from(all)).filter((x) => x !== 0).length,
  );
  losses.forEach(({ metrics: { 'actor/pg_clipfrac': share } }, i) => {
    if (share !== undefined) expect(clipped[i] / trained[i]).toBeCloseTo(share, 6);
  });
  const moving = losses.flatMap(({ metrics: { 'actor/grad_norm': norm } }, i) => (norm > 0 ? [i] : []));
  expect(moving.length).toBeGreaterThan(2);
  const want = cosines64(
    after,
    moving.map((i) => losses[i].tokens.grad),
  );
  // A float32 gradient through two layers has a relative error of about 1e-5, and a cosine has the same.
  moving.forEach((i, a) => moving.forEach((j, b) => expect(Math.abs(cosines[i][j] - want[a][b])).toBeLessThan(2e-5)));
  expect(want.flat().some((value) => value < 0.99)).toBe(true); // otherwise the test shows nothing
  // With a limit of one byte, at most two copies of the gradients are in memory. The results are the same.
  expect(await compareLosses(kept, LOSSES, engine, 1)).toEqual({ losses, cosines });
});

test('the same reward gives the logged scores exactly, and another one reports what it changes', async () => {
  const same = await rescore(kept, config, async (sample) => task.reward(sample));
  expect(same).toMatchObject({ correlation: 1, bestChanged: 0, signFlips: 0, samples: 12 });
  expect(same.newScore).toBe(metrics['critic/score/mean']);
  expect(same.oldScore).toBe(metrics['critic/score/mean']);
  const opposite = await rescore(kept, config, ({ response }) => ({ score: -response.length, acc: NaN }));
  expect(opposite).toMatchObject({ bestChanged: 1 });
  expect(opposite.signFlips).toBeGreaterThan(0.5);
});

test('samples of another vocabulary, and an estimator without its inputs, end in one error message each', async () => {
  const [first, ...rest] = kept.samples;
  const foreign = {
    ...first,
    trajectory: { ...first.trajectory, responseIds: Uint32Array.of(512), mask: Uint8Array.of(1) },
  };
  await expect(compareLosses({ ...kept, samples: [foreign, ...rest] }, LOSSES, engine)).rejects.toThrow(
    /^A sample of problem "p\d" has token 512, but the model knows 0 to 511\. Use a checkpoint of the run that saved the samples\.$/,
  );
  const remax = [LOSSES[0], { name: 'remax', config: configOf({ name: 'remax' }) }];
  await expect(compareLosses(kept, remax, engine)).rejects.toThrow(
    '--algorithm remax: advEstimator "remax" needs baselines, which this task does not provide.',
  );
});
