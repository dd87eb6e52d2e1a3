/**
 * Tests that tasks of `webgrpo init`, and the example of docs/guides/tasks.md, learn on the real engine. Every day
 * test/unit/initCommand.test.ts trains on them with the scripted engine.
 */

import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { writeTask } from '../../src/cli/commands/init.ts';
import { disk } from '../../src/cli/files.ts';
import { openTask } from '../../src/cli/run/openTask.ts';
import type { TrainConfig } from '../../src/grpo/config/types.ts';
import { parseTrainConfig } from '../../src/extensions/yaml/text.ts';
import { GrpoTrainer } from '../../src/grpo/trainer.ts';
import type { Task } from '../../src/tasks/task.ts';
import { createLocalEngine, engineSizes } from '../../src/workers/localEngine.ts';
import { isFull } from './full.ts';
import { readShipped } from './readFixture.ts';

const root = mkdtempSync(join(tmpdir(), 'webgrpo-init-'));
const SHORT = ['trainer.testFreq=0', 'trainer.valBeforeTrain=false', 'trainer.kernelTuning=off'];

const SHIPPED = 'checkpoints/gsm8k-tool';
const shipped = () => readShipped(SHIPPED);

/** Returns the mean reward of each step. */
async function rewardsOf(
  text: string,
  overrides: string[],
  open: (task: TrainConfig['task']) => Promise<Task>,
): Promise<number[]> {
  const config = parseTrainConfig(text, { source: 'config.yaml', overrides: [...SHORT, ...overrides] });
  const task = await open(config.task);
  const engine = await createLocalEngine({ ...engineSizes(config), ...(await shipped()) });
  try {
    const { history } = await new GrpoTrainer({ config, task, engine }).fit();
    return history.map((metrics) => metrics['critic/score/mean']);
  } finally {
    engine.destroy();
  }
}

const at = (name: string, template: string) =>
  writeTask(
    { ...disk, exists: async () => false, writeFolder: (path, files) => disk.writeFolder(join(root, path), files) },
    name,
    template,
    'npx webgrpo',
  );

const STEPS = 3;
test.runIf(isFull)(`the template jsonl learns within ${STEPS} steps`, async () => {
  await at('lines', 'jsonl');
  const rewards = await rewardsOf(
    readFileSync(join(root, 'lines', 'config.yaml'), 'utf8'),
    [`trainer.totalTrainingSteps=${STEPS}`, `task.path=${join(root, 'lines', 'train.jsonl')}`],
    openTask,
  );
  expect(rewards).toHaveLength(STEPS);
  expect(Math.max(...rewards.slice(1)), `rewards ${rewards.join(', ')}`).toBeGreaterThan(rewards[0] + 0.2);
});

test.runIf(isFull).each(['tool', 'environment'])(
  'the template %s learns within five steps, by its module',
  async (template) => {
    await at(template, template);
    const config = readFileSync(join(root, template, 'config.yaml'), 'utf8');
    const module = join(root, template, 'task.mjs');
    const rewards = await rewardsOf(config, ['trainer.totalTrainingSteps=5', `task.module=${module}`], openTask);
    expect(Math.max(...rewards.slice(2)), `rewards ${rewards.join(', ')}`).toBeGreaterThan(rewards[0] + 0.2);
  },
);

test.runIf(isFull)('the example of docs/guides/tasks.md trains', async () => {
  const rewards = await rewardsOf(
    readFileSync('examples/jsonl-task.yaml', 'utf8'),
    ['trainer.totalTrainingSteps=2'],
    openTask,
  );
  expect(rewards.every((reward) => reward >= 0 && reward <= 1)).toBe(true);
  expect(rewards).toHaveLength(2);
});
