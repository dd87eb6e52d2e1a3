/** A user's own project: two GRPO steps of a fresh model, engine in a worker, from nothing but the installed package. */

import {
  createRemoteEngine,
  engineSizes,
  GrpoTrainer,
  gsm8kToolTask,
  initWeights,
  parseModelConfig,
  resolveTrainConfig,
} from 'webgrpo';
import { buildGsm8kTokenizer } from 'webgrpo/tasks';
import EngineWorker from 'webgrpo/worker?worker';

async function run(): Promise<number[]> {
  const config = resolveTrainConfig({
    name: 'installed',
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxPromptLength: 96, maxResponseLength: 12, valSize: 2 },
    rollout: { n: 2, maxSlots: 4 },
    actor: { ppoMiniBatchSize: 2, maxTokenLen: 256 },
    trainer: { totalTrainingSteps: 2, testFreq: 0, valBeforeTrain: false },
  });
  const { tokenizer, config: tokenizerConfig } = buildGsm8kTokenizer(512);
  const model = parseModelConfig({
    architectures: ['LlamaForCausalLM'],
    vocab_size: 512,
    hidden_size: 16,
    intermediate_size: 32,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    max_position_embeddings: 256,
    tie_word_embeddings: true,
  });
  const engine = await createRemoteEngine(new EngineWorker(), {
    ...engineSizes(config),
    config: model,
    weights: initWeights(model, 1),
    tokenizerJson: tokenizer,
    tokenizerConfigJson: tokenizerConfig,
  });
  const { history } = await new GrpoTrainer({ config, task: gsm8kToolTask(), engine }).fit();
  await engine.destroy();
  return history.map((metrics) => metrics['actor/entropy']);
}

const log = document.querySelector('#log')!;
run().then(
  (entropies) => {
    log.textContent = JSON.stringify(entropies);
    document.title = 'done';
  },
  (error: unknown) => {
    log.textContent = error instanceof Error ? `${error.message}\n${error.stack}` : String(error);
    document.title = 'failed';
  },
);
