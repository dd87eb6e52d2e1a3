/** Runs GRPO steps rewarded by real models of transformers.js: a classifier, and a judge with its own model. */
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { initWeights } from '../../src/model/params.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import type { ScoredSample, SyncTask } from '../../src/tasks/task.ts';
import { openGenerator } from '../../src/extensions/rewards/transformersModels.ts';
import { createLocalEngine, engineSizes } from '../../src/workers/localEngine.ts';
import { bagClassifier, bagLogits, writeClassifier, writeGenerator } from '../onnxModels.ts';
import { tinyConfig } from './tinyModel.ts';

const task: SyncTask = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => task.train(1000 + i, 1)),
  reward: ({ responseTokens }: ScoredSample) => ({ score: responseTokens % 5, acc: 0 }),
};
const FILES = gsm8kTokenizer;
const tokenizer = new ChatTokenizer(FILES.tokenizer, FILES.config);
const folder = () => mkdtempSync(join(tmpdir(), 'webgrpo-reward-'));

test('two steps: the score is rule, classifier and judge by their weights', async () => {
  const classifier = bagClassifier(512, ['good', 'bad']);
  const [classifierPath, judgePath] = [folder(), folder()];
  writeClassifier(classifierPath, classifier, FILES);
  const judgeConfig = { ...tinyConfig, vocabSize: 512, headDim: 16 };
  writeGenerator(judgePath, judgeConfig, initWeights(judgeConfig, 9), FILES, tokenizer.eosTokenIds[0]);
  const judge = {
    weight: 0.5,
    path: judgePath,
    prompt: '{response} ?',
    max: 1e9,
    maxPromptLength: 112,
    maxNewTokens: 12,
  };
  const config = resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 16, maxResponseLength: 24, valMaxSamples: 1 },
    rollout: { n: 4, maxNumSeqs: 4 },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 80, optim: { lr: 0.05 } },
    reward: { ruleWeight: 2, judge, model: { path: classifierPath, label: 'good', weight: 3 } },
    trainer: { totalTrainingSteps: 2 },
  });
  const model = { ...tinyConfig, vocabSize: 512 };
  const files = { tokenizerJson: FILES.tokenizer, tokenizerConfigJson: FILES.config };
  const engine = await createLocalEngine({
    ...engineSizes(config),
    ...files,
    config: model,
    weights: initWeights(model, 3),
  });
  expect(engine.judge).toBeUndefined();
  const reply = await openGenerator(judgePath, judge);
  const trainer = new GrpoTrainer({ config, task, engine });
  const seen = new Set<number>();
  for (let step = 0; step < 2; step++) {
    const { samples, metrics } = await trainer.step();
    for (const { problem, messages, reward, trajectory } of samples) {
      const response = messages.findLast(({ role }) => role === 'assistant')!.content;
      const [good, bad] = bagLogits(classifier, tokenizer.encode(`${problem.messages[0].content}\n${response}`));
      expect(reward.extra!['model']).toBeCloseTo(1 / (1 + Math.exp(bad - good)), 5);
      const said = /-?\d+(\.\d+)?/.exec((await reply(`${response} ?`))!)?.[0] ?? '-1';
      expect(reward.extra!['judge']).toBe(Number(said) >= 0 ? Number(said) / 1e9 : 0);
      const { judge: judged, model: classified } = reward.extra as Record<string, number>;
      expect(reward.score).toBeCloseTo(2 * (trajectory.responseIds.length % 5) + 0.5 * judged + 3 * classified, 5);
      seen.add(classified);
    }
    expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
  }
  expect(seen.size).toBeGreaterThan(4);
  engine.destroy();
});
