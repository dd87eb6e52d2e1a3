/**
 * Runs one GRPO step of the shipped model outside a browser. Prints the adapter, the norm of the gradient, and the difference between
 * rollout and trainer.
 */

import { createLocalEngine, engineSizes, GrpoTrainer, gsm8kToolTask, resolveTrainConfig } from 'webgrpo';
import { gsm8kTool } from 'webgrpo/checkpoints';
import { installWebGpu, readCheckpoint } from 'webgrpo/node';

await installWebGpu();
const config = resolveTrainConfig({
  name: 'runtime',
  model: { path: 'gsm8k-tool' },
  data: { trainBatchSize: 2, maxResponseLength: 64, valMaxSamples: 2 },
  rollout: { n: 4, maxNumSeqs: 8 },
  actor: { ppoMiniBatchSize: 2 },
  trainer: { totalTrainingSteps: 1, testFreq: 0, valBeforeTrain: false },
});
const engine = await createLocalEngine({ ...engineSizes(config), ...(await readCheckpoint(gsm8kTool)) });
const { history } = await new GrpoTrainer({ config, task: gsm8kToolTask(), engine }).fit();
const { vendor, architecture, description } = engine.adapter;
const norm = history[0]['actor/grad_norm'];
if (!(norm > 0)) throw new Error(`The norm of the gradient is ${norm}.`);
const off = history[0]['training/rollout_probs_diff_max'];
console.log(
  `${description || `${vendor} ${architecture}`}: grad_norm ${norm.toFixed(3)}, rollout_probs_diff_max ${off}`,
);
(globalThis.Deno ?? process).exit(0);
