/** The work during which devices fail: create an engine, run a step, export and import a checkpoint, evaluate, and run the next step. */

import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Sample } from '../../src/grpo/update/batch.ts';
import { parseModelConfig } from '../../src/model/config.ts';
import { initWeights } from '../../src/model/params.ts';
import { buildGsm8kTokenizer } from '../../src/tasks.ts';
import type { SyncTask } from '../../src/tasks/task.ts';
import { createLocalEngine, engineSizes, type LocalEngine } from '../../src/workers/localEngine.ts';

const config = resolveTrainConfig({
  name: 'device',
  seed: 3,
  model: { path: 'in memory' },
  data: { trainBatchSize: 2, maxResponseLength: 16, maxPromptLength: 64, valMaxSamples: 2 },
  rollout: { n: 4, maxNumSeqs: 5 },
  actor: { ppoMiniBatchSize: 1, ppoMaxTokenLenPerGpu: 128, useKlLoss: true, klLossCoef: 0.01 },
  trainer: { totalTrainingSteps: 4, kernelTuning: 'off' },
});
const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = buildGsm8kTokenizer();
const model = parseModelConfig({
  architectures: ['LlamaForCausalLM'],
  vocab_size: 512,
  hidden_size: 24,
  intermediate_size: 28,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 128,
  initializer_range: 0.3,
  tie_word_embeddings: true,
});
const weights = initWeights(model, 9);
const spec = { ...engineSizes(config), config: model, weights, tokenizerJson, tokenizerConfigJson };

/**
 * A task with arbitrary rewards. A random model answers nothing correctly, but any reward that differs between samples produces gradients.
 */
const task: SyncTask = {
  name: 'length',
  train: (index) => ({ id: `${index}`, messages: [{ role: 'user', content: `${index} plus 3` }], answer: '' }),
  heldOut: (count) => Array.from({ length: count }, (_, i) => task.train(1000 + i, 0)),
  reward: ({ response }) => ({ score: response.length % 7, acc: response.length % 2 }),
};

/** Phases in order. The reference's log-probs are part of 'generate'; clearing the KV cache is part of 'update'. */
export const PHASES = [...(['load', 'generate', 'update', 'export', 'import', 'validate', 'generate again'] as const)];
export type Phase = (typeof PHASES)[number];

/** All results of the work as text, so that two runs can be compared bit for bit. */
export type Outcome = string;

/** Runs the scenario on a new engine and destroys it. `enter` is called at the start of each phase. */
export async function runScenario(enter: (phase: Phase) => void = () => {}): Promise<Outcome> {
  enter('load');
  const engine = await createLocalEngine(spec);
  try {
    return await steps(engine, enter);
  } finally {
    engine.destroy();
  }
}

async function steps(engine: LocalEngine, enter: (phase: Phase) => void): Promise<Outcome> {
  let [last, again] = ['load', false];
  const onPhase = (phase: string) => {
    const now = PHASES.find((known) => known === (again ? `${phase} again` : phase));
    if (now && now !== last) enter((last = now));
  };
  const trainer = new GrpoTrainer({ config, task, engine, onPhase });
  const first = await trainer.step();
  enter('export');
  const checkpoint = await trainer.checkpoint();
  enter('import');
  await trainer.restore(checkpoint);
  const metrics = await trainer.validate({ greedy: true });
  again = true;
  const second = await trainer.step();
  await engine.gpu.idle(); // receives late errors of the device
  const tensors = [...checkpoint.weights, ...checkpoint.optimizer].map(([name, { data }]) => [name, [...data]]);
  return JSON.stringify([told(first), told(second), withoutTimes(metrics), tensors]);
}

const told = ({ samples, metrics }: { samples: Sample[]; metrics: Metrics }) => [
  withoutTimes(metrics),
  samples.map(({ trajectory: { responseIds, logProbs } }) => [[...responseIds], [...logProbs]]),
];

const withoutTimes = (metrics: Metrics) =>
  Object.entries(metrics).filter(([key]) => !key.startsWith('timing') && !key.startsWith('perf/'));
