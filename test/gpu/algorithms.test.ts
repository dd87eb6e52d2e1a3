/** Every algorithm the config knows makes one whole step on a tiny model: generate, advantages, fused loss, update. */
import { beforeAll, expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config.ts';
import { RECIPES } from '../../src/grpo/recipes.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { initWeights } from '../../src/model/params.ts';
import type { Reward, ScoredSample, Task } from '../../src/tasks/task.ts';
import { buildGsm8kTokenizer } from '../../src/tasks/gsm8kTokenizer.ts';
import { createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';
import { tinyConfig } from './tinyModel.ts';

/** Pays for something every sample has in a different amount, so that each group has a spread. */
const task: Task = {
  name: 'length',
  train: (index) => ({ id: `train-${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => ({ id: `held-${i}`, messages: [], answer: '' })),
  reward: ({ response, responseTokens }: ScoredSample): Reward => {
    const digits = response.replace(/[^0-9]/g, '').length;
    return { score: digits + responseTokens / 7, acc: digits > 2 ? 1 : 0, extra: { digits, tokens: responseTokens } };
  },
};

const configOf = (algorithm: object, actor: object = {}) =>
  resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 12, valSize: 1 },
    rollout: { n: 4, maxSlots: 8 },
    actor: { ppoMiniBatchSize: 1, maxTokenLen: 80, optim: { lr: 1e-3 }, ...actor },
    algorithm: { filterGroups: { enable: false }, ...algorithm },
    trainer: { totalTrainingSteps: 1 },
  });

let engine: LocalEngine;
beforeAll(async () => {
  const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();
  const config = { ...tinyConfig, vocabSize: 512 };
  const sizes = engineSizes(configOf({}, { useKlLoss: true }));
  engine = await createLocalEngine({
    ...sizes,
    config,
    weights: initWeights(config, 3),
    tokenizerJson,
    tokenizerConfigJson,
  });
});

async function oneStep(algorithm: object, actor: object = {}) {
  const before = (await engine.model.exportWeights()).get('model.embed_tokens.weight')!.data.slice();
  const trainer = new GrpoTrainer({ config: configOf(algorithm, actor), task, engine });
  const { metrics } = await trainer.step();
  const after = (await engine.model.exportWeights()).get('model.embed_tokens.weight')!.data;
  for (const [name, value] of Object.entries(metrics)) expect(Number.isFinite(value), `${name} is ${value}`).toBe(true);
  expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
  expect(metrics['actor/skipped_updates']).toBe(0);
  expect(after.some((w, i) => w !== before[i])).toBe(true);
  return metrics;
}

test.each(Object.keys(RECIPES))('%s', async (name) => {
  await oneStep({ name });
});

test('KL in the reward, adaptive, with overlong shaping', async () => {
  const klCtrl = { type: 'adaptive', klCoef: 0.5 };
  const metrics = await oneStep({ useKlInReward: true, klCtrl, overlongBuffer: { len: 8 } });
  expect(metrics['actor/reward_kl_penalty_coeff']).toBe(0.5);
  expect(metrics['critic/rewards/mean']).toBeLessThan(metrics['critic/score/mean']);
});

test('KL in the loss', async () => {
  const metrics = await oneStep({}, { klLossCoef: 0.1, klLossType: 'r*k3' });
  expect(metrics['actor/kl_loss']).toBeGreaterThan(0);
});
