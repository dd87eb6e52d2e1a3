/** Tests that a complete GRPO step (rollout with tools, training, sync) allocates nothing after similar steps. */
import { expect, test } from 'vitest';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import { gsm8kToolTask } from '../../src/tasks/gsm8k/task.ts';
import { createLocalEngine } from '../../src/workers/localEngine.ts';
import { isFull } from './full.ts';
import { tinyConfig } from './tinyModel.ts';
import { tinySpec } from './tinySpec.ts';

const MORE = isFull ? 3 : 1;
test(`after two steps, ${MORE} more: no buffer, pipeline or bind group is created`, async () => {
  const config = resolveTrainConfig({
    name: 'steady',
    seed: 3,
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxResponseLength: 24, maxPromptLength: 64, valMaxSamples: 1 },
    rollout: { n: 3 },
    actor: { ppoMiniBatchSize: 1, ppoMaxTokenLenPerGpu: 256, useKlLoss: true, klLossCoef: 0.01 },
    trainer: { totalTrainingSteps: 2 + MORE },
  });
  const model = { ...tinyConfig, vocabSize: 512, maxPositionEmbeddings: 128 };
  const engine = await createLocalEngine(tinySpec(config, model, 9));
  const task = gsm8kToolTask();
  const reward: typeof task.reward = ({ response }) => ({ score: response.length % 7, acc: response.length % 2 });
  const trainer = new GrpoTrainer({ config, task: { ...task, reward }, engine });
  const made = () => {
    const { buffers, bytes, pipelines, bindGroups } = engine.gpu.counters;
    return { buffers, bytes, pipelines, bindGroups };
  };
  for (let i = 0; i < 2; i++) await trainer.step();
  const before = made();
  for (let i = 0; i < MORE; i++) {
    const { metrics } = await trainer.step();
    expect(metrics['actor/grad_norm']).toBeGreaterThan(0);
    expect(made()).toEqual(before);
  }
  engine.destroy();
});
