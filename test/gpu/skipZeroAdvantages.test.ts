/** Tests that samples that cannot change the policy are skipped in the update: the same gradient, the same optimizer step. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { RECIPES } from '../../src/grpo/config/recipes.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import type { TrainerEngine } from '../../src/grpo/types.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { stepTokens } from '../../src/grpo/update/stepTokens.ts';
import type { CustomLoss } from '../../src/grpo/losses/types.ts';
import { PolicyUpdater } from '../../src/grpo/update/updater.ts';
import type { ModelEngine, PackedBatch, TensorMap } from '../../src/model/engine.ts';
import { createLocalEngine, type LocalEngine } from '../../src/workers/localEngine.ts';
import { rng } from '../random.ts';
import { scriptedEngine } from '../scriptedRuns.ts';
import { isFull } from './full.ts';
import { tinyConfig } from './tinyModel.ts';
import { ENDED } from '../samples.ts';
import { tinySpec } from './tinySpec.ts';

const PROMPTS = 6;
const PER_PROMPT = 4;
const PROMPT_LENGTH = 5;
const model = { ...tinyConfig, vocabSize: 512 };

const configOf = (algorithm: object, actor: object = {}, ofModel: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x', ...ofModel },
    data: { trainBatchSize: PROMPTS, maxPromptLength: 48, maxResponseLength: 24, valMaxSamples: 1 },
    rollout: { n: PER_PROMPT, maxNumSeqs: 8 },
    actor: { ppoMiniBatchSize: PROMPTS, ppoMaxTokenLenPerGpu: 1024, shuffle: false, ...actor },
    algorithm,
    trainer: { totalTrainingSteps: 1 },
  });

/** With an epsilon of 1, an AdamW step depends on the gradient as smoothly as an SGD step, so rounding errors stay small. */
const SMOOTH = { lr: 0.1, eps: 1, weightDecay: 0.1 };

async function engineOf(ofModel: object = {}): Promise<LocalEngine> {
  return createLocalEngine(tinySpec(configOf({}, { useKlLoss: true }, ofModel), model));
}

const lengthOf = (s: number) => 3 + ((s * 5) % 11);

/** Returns samples of random tokens, slightly off policy. In the groups listed in `silent`, all samples have the reward 0.1. */
async function samplesOf(config: TrainConfig, engine: TrainerEngine, silent: number[]): Promise<Sample[]> {
  const random = rng(11);
  const samples = Array.from({ length: PROMPTS * PER_PROMPT }, (_, s): Sample => {
    const [group, length] = [Math.floor(s / PER_PROMPT), lengthOf(s)];
    const score = random.uniform();
    return {
      problem: { id: 'p', messages: [], answer: '' },
      group,
      messages: [],
      reward: { score: silent.includes(group) ? 0.1 : score, acc: 0, extra: { score } },
      trajectory: {
        promptIds: new Uint32Array(PROMPT_LENGTH).fill(1 + group),
        responseIds: Uint32Array.from({ length }, () => Math.floor(random.uniform() * model.vocabSize)),
        mask: Uint8Array.from({ length }, (_, t) => (t % 4 === 2 ? 0 : 1)),
        logProbs: new Float32Array(length),
        logMass: new Float32Array(length),
        ...ENDED,
      },
    };
  });
  const now = await new PolicyUpdater(config, engine).oldLogProbs(samples);
  for (const [s, { trajectory }] of samples.entries())
    trajectory.logProbs = trajectory.logProbs.map((_, t) =>
      trajectory.mask[t] ? now[s][t] - 0.1 * random.normals(1)[0] : 0,
    );
  return samples;
}

/** Runs the updates of a step and returns their inputs and results. The engine is restored afterwards. */
async function update(engine: TrainerEngine, config: TrainConfig, samples: Sample[], custom?: CustomLoss) {
  const { model: real } = engine;
  const [weights, moments] = [await real.exportWeights(), await real.exportOptimizer()];
  const [batches, gradients]: [PackedBatch[], TensorMap[]] = [[], []];
  const watched = {
    name: real.name,
    config: real.config,
    logProbs: (...args: Parameters<ModelEngine['logProbs']>) => real.logProbs(...args),
    forwardBackward: (...args: Parameters<ModelEngine['forwardBackward']>) => {
      batches.push(args[0]);
      return real.forwardBackward(...args);
    },
    optimizerStep: async (...args: Parameters<ModelEngine['optimizerStep']>) => {
      gradients.push(await real.exportGradients());
      return real.optimizerStep(...args);
    },
  } as ModelEngine;
  const ones = samples.map(({ trajectory }) => trajectory.logProbs.map((x) => x - 0.2));
  const tokens = stepTokens(config, samples, { refLogProbs: ones, baselines: samples.map(() => 0) });
  const updater = new PolicyUpdater(config, { ...engine, model: watched }, custom);
  const result = await updater.update(samples, tokens, { step: 0 });
  const after = { weights: await real.exportWeights(), moments: await real.exportOptimizer() };
  await real.importWeights(weights);
  await real.importOptimizer(moments);
  const rows = batches.reduce((n, { tokens: ids }) => n + ids.length, 0);
  return { ...result, gradients, after, rows, microBatches: batches.length };
}

/** Returns |a - b| / |b| over all tensors; with `from`, relative to |b - from|. */
function distance(a: TensorMap, b: TensorMap, from?: TensorMap): number {
  let [difference, norm] = [0, 0];
  for (const [name, { data }] of b) {
    const [other, start] = [a.get(name)!.data, from?.get(name)!.data];
    data.forEach(
      (x, i) => ([difference, norm] = [difference + (other[i] - x) ** 2, norm + (x - (start?.[i] ?? 0)) ** 2]),
    );
  }
  expect(norm).toBeGreaterThan(0);
  return Math.sqrt(difference / norm);
}

/** Rounding: sums of about 200 terms in another order, that is a few dozen roundings of 6e-8. */
const ROUNDING = 3e-6;
const trainedTokens = (groups: number[]) =>
  Array.from({ length: PROMPTS * PER_PROMPT }, (_, s) => s)
    .filter((s) => groups.includes(Math.floor(s / PER_PROMPT)))
    .reduce(
      (n, s) =>
        n + Array.from({ length: lengthOf(s) }, (_, t) => (t % 4 === 2 ? 0 : 1)).reduce((a: number, b) => a + b, 0),
      0,
    );
const ALL = [0, 1, 2, 3, 4, 5];

/** The updater leaves rows out before the model sees them, so the everyday tests train only all weights. */
const TRAINED: [string, object][] = [
  ['all weights', {}],
  ['LoRA with checkpointing', { loraRank: 4, enableGradientCheckpointing: true }],
];
describe.each(isFull ? TRAINED : TRAINED.slice(0, 1))('%s', (_, ofModel) => {
  let engine: LocalEngine;
  beforeAll(async () => void (engine = await engineOf(ofModel)));
  afterAll(() => engine.destroy());
  /** Runs the same update with skipZeroAdvantages on and off. */
  const both = async (algorithm: object, actor: object, silent: number[]) => {
    const [on, off] = [true, false].map((skip) => configOf(algorithm, { ...actor, skipZeroAdvantages: skip }, ofModel));
    const samples = await samplesOf(on, engine, silent);
    return { skipped: await update(engine, on, samples), whole: await update(engine, off, samples) };
  };

  test('four of six groups: the gradient of all of them, from the rows of four', async () => {
    const { skipped, whole } = await both({}, {}, [1, 4]);
    expect(distance(skipped.gradients[0], whole.gradients[0])).toBeLessThan(ROUNDING);
    expect([skipped.trainedTokens, whole.trainedTokens]).toEqual([trainedTokens([0, 2, 3, 5]), trainedTokens(ALL)]);
    // The packed rows contain each prompt once per group, because packing keeps the remaining samples of a group together.
    const rowsOf = (groups: number[]) =>
      groups.reduce(
        (n, g) => n + PROMPT_LENGTH + [0, 1, 2, 3].reduce((sum, i) => sum + lastTrained(g * PER_PROMPT + i), 0),
        0,
      );
    expect([skipped.rows, whole.rows]).toEqual([rowsOf([0, 2, 3, 5]), rowsOf(ALL)]);
    expect(skipped.metrics['actor/skipped_tokens_share']).toBeCloseTo(
      1 - skipped.trainedTokens / whole.trainedTokens,
      12,
    );
    expect(whole.metrics['actor/skipped_tokens_share']).toBeUndefined();
    expect(skipped.metrics['actor/pg_loss']).toBe(whole.metrics['actor/pg_loss']);
  });

  const modes = ['token-mean', 'seq-mean-token-mean', 'seq-mean-token-sum-norm'];
  // The mode changes only the weights of the tokens, which do not depend on what is skipped. updater.test.ts tests every mode.
  test.each(isFull ? modes : modes.slice(1, 2))(
    '%s, two epochs of two mini-batches in micro-batches of two: the same weights',
    async (lossAggMode) => {
      const actor = { lossAggMode, ppoEpochs: 2, ppoMiniBatchSize: 3, ppoMicroBatchSizePerGpu: 2, optim: SMOOTH };
      const before = await engine.model.exportWeights();
      const { skipped, whole } = await both({}, actor, [1, 4]);
      expect([skipped.updates, whole.updates]).toEqual([4, 4]);
      expect([skipped.microBatches, whole.microBatches]).toEqual([16, 24]);
      skipped.gradients.forEach((gradient, i) => expect(distance(gradient, whole.gradients[i])).toBeLessThan(ROUNDING));
      expect(distance(skipped.after.weights, whole.after.weights, before)).toBeLessThan(ROUNDING);
    },
  );

  test('without any signal the optimizer still takes its step, bit for bit', async () => {
    const actor = { optim: { lr: 0.01, weightDecay: 0.1 } };
    // Runs one real update first, so that the optimizer's moments are not 0.
    const first = configOf({}, actor, ofModel);
    const { after } = await update(engine, first, await samplesOf(first, engine, []));
    await engine.model.importWeights(after.weights);
    await engine.model.importOptimizer(after.moments);
    const { skipped, whole } = await both({}, actor, ALL);
    expect([skipped.microBatches, whole.microBatches]).toEqual([0, 1]);
    for (const [name, { data }] of whole.after.weights) expect(skipped.after.weights.get(name)!.data).toEqual(data);
    for (const [name, { data }] of whole.after.moments) expect(skipped.after.moments.get(name)!.data).toEqual(data);
    expect(skipped.after.moments.get('step')!.data[0]).toBe(2);
    expect(distance(skipped.after.weights, after.weights)).toBeGreaterThan(1e-4); // moments change the weights
    expect([skipped.updates, skipped.trainedTokens]).toEqual([1, 0]);
    expect(skipped.metrics).toMatchObject({
      'actor/grad_norm': 0,
      'actor/pg_loss': 0,
      'actor/skipped_tokens_share': 1,
    });
    expect(skipped.metrics['actor/entropy']).toBeUndefined();
  });
});

/** Returns the number of a sample's rows: its tokens before the last trained one. */
function lastTrained(s: number): number {
  const last = lengthOf(s) - 1;
  return last % 4 === 2 ? last - 1 : last;
}

/**
 * Which samples are skipped does not depend on the engine, so the everyday tests use the scripted engine. --full compares gradients of the
 * real one.
 */
describe('updates that use all samples', () => {
  let real: LocalEngine | undefined;
  let engine: TrainerEngine;
  beforeAll(async () => {
    if (isFull) real = await engineOf();
    engine = real ?? scriptedEngine();
  });
  afterAll(() => real?.destroy());
  const trained = async (algorithm: object, actor: object, custom?: CustomLoss) => {
    const config = configOf(algorithm, actor);
    return (await update(engine, config, await samplesOf(config, engine, [1, 4]), custom)).trainedTokens;
  };
  const [SOME, WHOLE] = [trainedTokens([0, 2, 3, 5]), trainedTokens(ALL)];
  /**
   * Algorithms that must train on all samples: losses with a gradient at advantage 0 or with a choice among all tokens, and estimators that
   * centre over the complete batch.
   */
  const WHOLE_RECIPES = [
    ...['clip_cov', 'kl_cov', 'dro', 'reinforce_plus_plus', 'reinforce_plus_plus_baseline', 'remax', 'gdpo'],
    'rae',
  ];
  /** All recipes except turn_loo, which needs rewards of turns. */
  const SHIPPED = Object.keys(RECIPES).filter((name) => name !== 'turn_loo');

  test.each(SHIPPED)('recipe %s', async (name) => {
    const actor = { klLossCoef: 0, useKlLoss: false, entropyCoeff: 0 };
    const tokens = await trained({ name, useKlInReward: false }, actor);
    if (name === 'grpo_passk') expect(tokens).toBeLessThan(SOME / 2); // only the best sample of each group
    else expect(tokens).toBe(WHOLE_RECIPES.includes(name) ? WHOLE : SOME);
    if (tokens === WHOLE || !real) return;
    const [config, whole] = [true, false].map((skipZeroAdvantages) =>
      configOf({ name }, { ...actor, skipZeroAdvantages }),
    );
    const samples = await samplesOf(config, engine, [1, 4]);
    const [a, b] = [await update(engine, config, samples), await update(engine, whole, samples)];
    expect(distance(a.gradients[0], b.gradients[0])).toBeLessThan(ROUNDING);
  });

  test.each([
    ['the setting', { skipZeroAdvantages: false }],
    ['KL to the reference', { klLossCoef: 0.01 }],
    ['an entropy bonus', { entropyCoeff: 0.01 }],
    ['an entropy target', { entropyTarget: 0.1 }],
    ['the tokens of highest entropy', { topEntropyQuantile: 0.5 }],
  ])('not with %s', async (_, actor) => expect(await trained({}, actor)).toBe(WHOLE));

  test('not with off-policy sequence masking, nor a loss that is a function', async () => {
    expect(await trained({ rolloutCorrection: { offPolicyMaskThreshold: 10 } }, {})).toBe(WHOLE);
    const custom: CustomLoss = ({ weights }) => ({ dLogProbs: weights });
    expect(await trained({}, {}, custom)).toBe(WHOLE);
  });
});
