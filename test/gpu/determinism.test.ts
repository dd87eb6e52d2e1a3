/** Tests that the same seed on the same adapter repeats a run: every metric except times, bit for bit. */
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import type { Metrics } from '../../src/grpo/metrics.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { createLocalEngine } from '../../src/workers/localEngine.ts';
import { isFull } from './full.ts';
import { tinyConfig } from './tinyModel.ts';
import { tinySpec } from './tinySpec.ts';

const isTime = (name: string) => name.startsWith('timing') || name.startsWith('perf/');

async function run(seed: number, totalTrainingSteps: number): Promise<Metrics[]> {
  const config = resolveTrainConfig({
    name: 'twice',
    seed,
    model: { path: 'in memory' },
    data: { trainBatchSize: 4, maxResponseLength: 24, maxPromptLength: 64, valMaxSamples: 4 },
    rollout: { n: 4, maxNumSeqs: 7 },
    actor: { ppoMiniBatchSize: 2, ppoMaxTokenLenPerGpu: 256 },
    trainer: { totalTrainingSteps, testFreq: 2 },
  });
  const model = { ...tinyConfig, vocabSize: 512, maxPositionEmbeddings: 128 };
  const engine = await createLocalEngine(tinySpec(config, model, 9));
  // A random model answers nothing correctly. Any reward that differs between samples produces gradients.
  const task = gsm8kToolTask();
  const reward: typeof task.reward = ({ response }) => ({ score: response.length % 7, acc: response.length % 2 });
  const { history } = await new GrpoTrainer({ config, task: { ...task, reward }, engine }).fit();
  engine.destroy();
  return history.map((metrics) => Object.fromEntries(Object.entries(metrics).filter(([name]) => !isTime(name))));
}

// The everyday tests compare whole runs with stored curves, bit for bit.
test.runIf(isFull)('two runs with one seed give identical metrics but for times; another seed does not', async () => {
  const [first, second, other] = [await run(5, 2), await run(5, 2), await run(6, 1)];
  expect(second).toEqual(first);
  // The first line is the evaluation before the first step.
  expect(other[1]['actor/grad_norm']).not.toBe(first[1]['actor/grad_norm']);
  expect(other[1]['actor/grad_norm']).toBeGreaterThan(0);
  expect(Math.max(...first.map((m) => m['training/rollout_probs_diff_max'] ?? 0))).toBe(0);
  expect(first.at(-1)!['actor/grad_norm']).toBeGreaterThan(0);
});
