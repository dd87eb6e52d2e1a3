/** A user's own project: two GRPO steps of a new model using only the installed package, in this thread (?local) or a worker. */

import {
  createLocalEngine,
  createRemoteEngine,
  engineSizes,
  fetchCheckpoint,
  GrpoTrainer,
  gsm8kToolTask,
  initWeights,
  parseModelConfig,
  resolveTrainConfig,
} from 'webgrpo';
import { buildGsm8kTokenizer } from 'webgrpo/tasks';

async function run() {
  const config = resolveTrainConfig({
    name: 'bundled',
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxPromptLength: 96, maxResponseLength: 12, valMaxSamples: 2 },
    rollout: { n: 2, maxNumSeqs: 4 },
    // All tries of a new model score 0. Samples without an advantage are trained on anyway, so that there is an entropy to check.
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256, skipZeroAdvantages: false },
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
  const spec = {
    ...engineSizes(config),
    config: model,
    weights: initWeights(model, 1),
    tokenizerJson: tokenizer,
    tokenizerConfigJson: tokenizerConfig,
  };
  // The test replaces this text with the way in which the bundler starts a worker.
  const engine =
    location.search === '?local' ? await createLocalEngine(spec) : await createRemoteEngine(NEW_WORKER, spec);
  const { history } = await new GrpoTrainer({ config, task: gsm8kToolTask(), engine }).fit();
  await engine.destroy();
  // This folder does not exist, so the server answers with the page's HTML, as development servers do.
  const refused = await fetchCheckpoint('/no-such-folder').catch((error) => error.message);
  return { entropies: history.map((metrics) => metrics['actor/entropy']), refused };
}

run().then(
  (result) => {
    document.title = `done ${JSON.stringify(result)}`;
  },
  (error) => {
    document.title = `failed ${error instanceof Error ? `${error.message}\n${error.stack}` : String(error)}`;
  },
);
