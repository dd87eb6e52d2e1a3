/**
 * Reads the files that reward settings name. Rubrics are read first, so that an error in one is reported before anything is created. The
 * path of a reward model's folder gets the prefix "./", because transformers.js would take "a/b" for a name on the Hub.
 */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { TrainConfig } from '../../grpo/config/types.ts';
import { lineOf, readYaml } from '../../extensions/yaml/index.ts';
import { parseRubric, type Rubric } from '../../extensions/rewards/index.ts';
import { readText } from '../files.ts';

/**
 * Returns the config with the validated rubric in place of its file name, and with the prefix "./" for folders of reward models. Throws
 * InputError.
 */
export async function withRewardFiles(config: TrainConfig): Promise<TrainConfig> {
  const { judge, model, rubric } = config.reward;
  const named = <T extends { path?: string | undefined }>(part: T): T =>
    part.path !== undefined && isModelFolder(part.path) ? { ...part, path: `./${part.path}` } : part;
  const read = typeof rubric === 'string' ? await readRubric(rubric) : rubric && parseRubric(rubric, 'reward.rubric');
  return {
    ...config,
    reward: { ...config.reward, judge: named(judge), model: named(model), ...(read && { rubric: read }) },
  };
}

/** Reads a rubric from a YAML file. Throws InputError that names file, line and criterion. */
export async function readRubric(path: string): Promise<Rubric> {
  const text = await readText(path);
  return parseRubric(readYaml(text, path) ?? {}, path, (at) => lineOf(text, at));
}

const isModelFolder = (path: string): boolean => !/^[./]/.test(path) && existsSync(join(path, 'config.json'));
