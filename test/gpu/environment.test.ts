/** An environment in training: the example of the documents. */
import { expect, test } from 'vitest';
import guessTask from '../../examples/environment.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { initWeights } from '../../src/model/params.ts';
import { buildGsm8kTokenizer } from '../../src/tasks/gsm8k/tokenizer.ts';
import { createLocalEngine, engineSizes } from '../../src/workers/localEngine.ts';
import { tinyConfig } from './tinyModel.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();

async function trained() {
  const config = resolveTrainConfig({
    name: 'tiny',
    model: { path: 'x' },
    data: { trainBatchSize: 2, maxPromptLength: 48, maxResponseLength: 48, valMaxSamples: 2 },
    rollout: { n: 4, maxNumSeqs: 8, multiTurn: { maxAssistantTurns: 3 } },
    actor: { ppoMiniBatchSize: 2, optim: { lr: 1e-3 } },
    algorithm: { advEstimator: 'turn_loo' },
    trainer: { totalTrainingSteps: 2, testFreq: 0, valBeforeTrain: false },
  });
  const model = { ...tinyConfig, vocabSize: 512 };
  const files = { tokenizerJson, tokenizerConfigJson };
  const engine = await createLocalEngine({
    ...engineSizes(config),
    config: model,
    weights: initWeights(model, 3),
    ...files,
  });
  try {
    const { history } = await new GrpoTrainer({ config, task: guessTask, engine }).fit();
    return history;
  } finally {
    engine.destroy();
  }
}

test('examples/environment.ts trains', async () => {
  const history = await trained();
  expect(history.map((metrics) => Number.isFinite(metrics['critic/score/mean']))).toEqual([true, true]);
}, 120_000);
