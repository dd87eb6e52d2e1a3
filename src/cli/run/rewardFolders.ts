/** Reward models that are folders here. transformers.js takes any "a/b" for a name on the hub unless "./" is before it. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';

/** The config, with "./" before a reward model's path that is a folder of a model. */
export function withRewardFolders(config: TrainConfig): TrainConfig {
  const { judge, model } = config.reward;
  const named = <T extends { path?: string | undefined }>(part: T): T =>
    part.path !== undefined && isModelFolder(part.path) ? { ...part, path: `./${part.path}` } : part;
  return { ...config, reward: { ...config.reward, judge: named(judge), model: named(model) } };
}

const isModelFolder = (path: string): boolean => !/^[./]/.test(path) && existsSync(join(path, 'config.json'));
