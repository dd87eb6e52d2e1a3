/** Runs the real trainer in a real folder, with an engine that computes in microseconds and whose results depend on all earlier inputs. */

import { readFileSync } from 'node:fs';
import { RunFolder } from '../../src/runs/runFolder.ts';
import type { FileSystem } from '../../src/runs/fileSystem.ts';
import { newestCheckpoint } from '../../src/runs/checkpointFolder.ts';
import { trainInto } from '../../src/cli/run/shownRun.ts';
import { resolveTrainConfig } from '../../src/grpo/config/resolve.ts';
import { initWeights } from '../../src/model/params.ts';
import { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import type { Task } from '../../src/tasks/task.ts';
import { SCRIPTED_CONFIG } from '../../test/scripted/model.ts';
import { ScriptedEngine } from '../../test/scriptedEngine.ts';

const readJson = (path: string) => JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
const TOKENIZER = new ChatTokenizer(
  readJson('checkpoints/gsm8k-tool/tokenizer.json'),
  readJson('checkpoints/gsm8k-tool/tokenizer_config.json'),
);

/** A task with state (its difficulty), so that a checkpoint contains a part of the task. */
function tinyTask(): Task {
  let seen = 0;
  const problem = (index: number) => ({
    id: `tiny-${index}`,
    messages: [{ role: 'user' as const, content: `What is ${index} + ${seen % 7}?` }],
    answer: String(index),
    dataSource: 'tiny',
  });
  return {
    name: 'tiny',
    train: (index) => problem(index),
    heldOut: (count) => Array.from({ length: count }, (_, i) => problem(1000 + i)),
    reward: ({ response }) => {
      const score = (Number(/\d+/.exec(response)?.[0] ?? 0) % 5) / 4;
      return { score, acc: Math.round(score) };
    },
    observe: () => void seen++,
    state: () => seen,
    restore: (state) => void (seen = state as number),
  };
}

/** Trains to the last step, from the checkpoint folder `from`, or from the newest intact checkpoint if there is one. */
export async function runOn(files: FileSystem, path: string, trainer: object, from?: string): Promise<void> {
  const config = resolveTrainConfig({
    name: 'run',
    model: { path: 'in memory' },
    data: { trainBatchSize: 2, maxPromptLength: 64, maxResponseLength: 32, valMaxSamples: 2 },
    rollout: { n: 2 },
    actor: { ppoMiniBatchSize: 2, optim: { lr: 0.01 } },
    trainer: {
      totalTrainingSteps: 8,
      saveFreq: 2,
      testFreq: 4,
      valBeforeTrain: true,
      profile: false,
      logger: ['jsonl'],
      ...trainer,
    },
  });
  const weights = initWeights(SCRIPTED_CONFIG, 1);
  const engine = new ScriptedEngine({ tokenizer: TOKENIZER, weights });
  const model = {
    config: SCRIPTED_CONFIG,
    weights,
    tokenizerJson: {},
    tokenizerConfigJson: {},
    base: 'in memory',
  };
  await trainInto({
    folder: RunFolder.open(files, path),
    config,
    from: from ?? (await newestCheckpoint(files, path, 'trainer')),
    open: async () => ({ model, task: tinyTask(), engine, close: () => {} }),
  });
}
