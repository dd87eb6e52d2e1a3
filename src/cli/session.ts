/** Opens what a command works with: model, task and engine, with what was found said in one line each. */

import type { TrainConfig } from '../grpo/config.ts';
import { parameterCount } from '../model/params.ts';
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
  const engine = await openEngine(model, engineSizes(config));
  return { model, task, engine };
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
