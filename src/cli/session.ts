/** Opens what a command works with: model, task and engine, with what was found said in one line each. */

import type { TrainConfig } from '../grpo/config.ts';
import { InputError } from '../model/errors.ts';
import { parameterCount } from '../model/params.ts';
import { ChatTokenizer } from '../model/tokenizer.ts';
import type { Task } from '../tasks/task.ts';
import { createLocalEngine, engineSizes, type EngineSpec, type LocalEngine } from '../workers/localEngine.ts';
import { type LoadedModel, loadModel } from './checkpoints.ts';
import { installDawn } from './dawn.ts';
import { openTask } from './openTask.ts';
import { say } from './progress.ts';

export interface Session {
  model: LoadedModel;
  task: Task;
  engine: LocalEngine;
}

/** Throws InputError for a bad checkpoint or task, NoAdapterError, OutOfMemoryError. */
export async function openSession(config: TrainConfig): Promise<Session> {
  const [model, task] = [await loadModel(config.model.path), await openTask(config.task)];
  say(`model: ${config.model.path}, ${(parameterCount(model.config) / 1e6).toFixed(2)} M parameters`);
  checkFits(model, config);
  const engine = await openEngine(model, engineSizes(config));
  return { model, task, engine };
}

/** A tokenizer with ids the model has no row for, or sequences beyond its positions, would train on nonsense. */
function checkFits({ config, tokenizerJson, tokenizerConfigJson }: LoadedModel, { model, data }: TrainConfig): void {
  const { vocabSize } = new ChatTokenizer(tokenizerJson, tokenizerConfigJson);
  if (vocabSize > config.vocabSize) {
    throw new InputError(
      `${model.path}: the tokenizer has ${vocabSize} tokens but the model ${config.vocabSize} rows; they are not of one model.`,
    );
  }
  const longest = data.maxPromptLength + data.maxResponseLength;
  if (longest > config.maxPositionEmbeddings) {
    throw new InputError(
      `${model.path}: the model has ${config.maxPositionEmbeddings} positions, but data.maxPromptLength + ` +
        `data.maxResponseLength is ${longest}; lower them.`,
    );
  }
}

/** An engine on Dawn for a loaded model. */
export async function openEngine(
  model: LoadedModel,
  sizes: Omit<EngineSpec, 'config' | 'weights' | 'tokenizerJson' | 'tokenizerConfigJson'>,
): Promise<LocalEngine> {
  await installDawn();
  const { config, weights, tokenizerJson, tokenizerConfigJson } = model;
  const engine = await createLocalEngine({ ...sizes, config, weights, tokenizerJson, tokenizerConfigJson });
  const { description, vendor, isSoftware } = engine.adapter;
  say(`adapter: ${description || vendor}${isSoftware ? ' (software: right, but slow)' : ''}`);
  return engine;
}
