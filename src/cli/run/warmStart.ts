/** Supports the config of a supervised run as `model.path`: trains that model first, unless it is already trained. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { parseSftConfig, type SftConfig } from '../../extensions/sft/index.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { InputError } from '../../errors.ts';
import { checkCheckpoint } from '../../runs/checkpointFolder.ts';
import { disk, readText } from '../files.ts';
import { holdFolder } from '../process/heldFolder.ts';
import { runOf } from './namedRun.ts';
import { openTask } from './openTask.ts';
import { say } from './progress.ts';
import { runSupervised, supervisedFolder } from './supervised.ts';
import { notedHashes } from './resume.ts';

/**
 * If `model.path` is the config of a supervised run, replaces it by the final checkpoint of that run, whose folder is next to the training
 * run's. Throws StoppedError if a signal ended the supervised run early, InputError if another process is training it.
 */
export async function withWarmStart(config: TrainConfig): Promise<TrainConfig> {
  const { path: source } = config.model;
  if (!/\.ya?ml$/.test(source) || runOf(source)) return config;
  const overrides = [`trainer.defaultLocalDir=${JSON.stringify(config.trainer.defaultLocalDir)}`];
  const supervised = parseSftConfig(await readText(source), { source, overrides });
  const folder = supervisedFolder(supervised);
  const sha256 = await taskHash(supervised);
  if (await isMade(supervised, sha256)) say(`warm start: ${folder}, made earlier by ${source}`);
  else await make(supervised, source, sha256);
  return { ...config, model: { ...config.model, path: lastCheckpoint(supervised) } };
}

async function make(config: SftConfig, source: string, sha256: string | undefined): Promise<void> {
  using held = holdFolder(supervisedFolder(config));
  if (await isMade(config, sha256)) return; // another process has just finished it
  const left = (await isOfTask(config, sha256)) ? 'the earlier one is incomplete' : 'the task has changed';
  say((await isOfConfig(config)) ? `warm start: ${source} again, because ${left}` : `warm start: ${source} first`);
  await runSupervised(held.files, config);
}

/** Returns the SHA-256 of the files of the task's module or data; undefined for a task that has none. */
async function taskHash({ task }: SftConfig): Promise<string | undefined> {
  const opened = await openTask(task);
  opened.close?.();
  return opened.sha256;
}

/** True if the existing supervised run was trained on this version of the task's files. */
async function isOfTask(config: SftConfig, sha256: string | undefined): Promise<boolean> {
  const file = join(supervisedFolder(config), 'task.json');
  return (await notedHashes(file)).sha256 === sha256;
}

/** True if a supervised run with exactly this config and task has finished: its last checkpoint exists and is intact. */
async function isMade(config: SftConfig, sha256: string | undefined): Promise<boolean> {
  const path = lastCheckpoint(config);
  if (!(await isOfConfig(config)) || !(await isOfTask(config, sha256)) || !existsSync(path)) return false;
  return checkCheckpoint(disk, path, 'model').then(
    () => true,
    (error: unknown) => {
      if (error instanceof InputError) return false; // the checkpoint is damaged
      throw error;
    },
  );
}

const lastCheckpoint = (config: SftConfig): string =>
  join(supervisedFolder(config), 'checkpoints', `step-${config.trainer.totalTrainingSteps}`);

async function isOfConfig(config: SftConfig): Promise<boolean> {
  const file = join(supervisedFolder(config), 'config.yaml');
  return existsSync(file) && (await readText(file)) === stringify(config);
}
