/** `model.path` may be the config of a supervised run: its model is then made first, unless that has been done. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { parseSftConfig } from '../../grpo/config/text.ts';
import { newestCheckpoint } from './checkpoints.ts';
import { readText } from '../files.ts';
import { say } from './progress.ts';
import { runSupervised } from './supervised.ts';

/** The config with a folder for `model.path`. The supervised run lies beside the training run, under its own name. */
export async function withWarmStart(config: TrainConfig): Promise<TrainConfig> {
  const { path: source } = config.model;
  if (!/\.ya?ml$/.test(source)) return config;
  const overrides = [`trainer.defaultLocalDir=${JSON.stringify(config.trainer.defaultLocalDir)}`];
  const supervised = parseSftConfig(await readText(source), { source, overrides });
  const path = join(supervised.trainer.defaultLocalDir, supervised.name);
  if (await isMade(path, stringify(supervised))) say(`warm start: ${path}, made earlier by ${source}`);
  else {
    say(`warm start: ${source} first`);
    await runSupervised(supervised);
  }
  return { ...config, model: { ...config.model, path } };
}

/** True if a run of this very config has a checkpoint there. */
async function isMade(path: string, config: string): Promise<boolean> {
  const file = join(path, 'config.yaml');
  return existsSync(file) && (await readText(file)) === config && (await newestCheckpoint(path)) !== undefined;
}
