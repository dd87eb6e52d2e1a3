/** `jsonl`: a task that needs no code. Problems are the lines of a file, and the reward compares a response with the answer. */

import { InputError } from '../../../errors.ts';
import { readOptions } from '../checkOptions.ts';
import type { Reward, ScoredSample, SyncTask } from '../../../tasks/task.ts';
import { drawnFrom, type JsonlFiles, splitProblems } from './file.ts';
import { JSONL_FIELDS, type JsonlFields, parseJsonl } from './problems.ts';
import {
  checkTaken,
  comparisonOf,
  JSONL_REWARD_OPTIONS,
  JSONL_REWARDS,
  type JsonlRewardName,
  type JsonlRewardOptions,
} from './reward.ts';

/** Returns a sample's score, which is also its `acc`, or a full Reward. A sample whose score is null or NaN is not trained on. */
export type JsonlReward = (sample: ScoredSample) => number | null | Reward | Promise<number | null | Reward>;

/** Settings for reading problems and for comparing responses with answers; see docs/guides/tasks.md. */
export interface JsonlOptions extends JsonlFields, JsonlRewardOptions {
  /**
   * Reward of a response. exact = response and answer are the same text, apart from spaces around them; contains = the response contains
   * the answer; number = the last number of each is the same; regex = the last match of `pattern` in the response is the answer. A function
   * can return any score. Default: exact.
   */
  reward: JsonlRewardName | JsonlReward;
}

/**
 * Creates the task from JSONL texts. Training problems are reordered each epoch, held-out ones keep the order of their file.
 *
 *   const text = await (await fetch('train.jsonl')).text();
 *   const task = jsonlTask({ train: { file: 'train.jsonl', text } }, { reward: 'number' });
 *
 * Throws InputError that names file and line if content is invalid, and InputError if an option has no effect.
 */
export function jsonlTask(files: JsonlFiles, options: Partial<JsonlOptions> = {}): SyncTask {
  const { reward = 'exact', ...rest } = options;
  const told = { ...JSONL_FIELDS, ...JSONL_REWARD_OPTIONS, ...rest };
  if (typeof reward === 'function') {
    checkTaken('own', told);
    const { train, test } = splitProblems(files, (file) => parseJsonl(file, told));
    return {
      name: 'jsonl',
      ...drawnFrom('jsonl', train, test),
      reward: async (sample) => scored(await reward(sample)),
    };
  }
  if (!JSONL_REWARDS.includes(reward))
    throw new InputError(
      `task.options.reward is "${reward as string}"; allowed: ${JSONL_REWARDS.join(', ')}, module. Name one of them.`,
    );
  const { unfit, reward: compare } = comparisonOf(reward, told);
  const { train, test } = splitProblems(files, (file) => parseJsonl(file, told, unfit));
  return {
    name: 'jsonl',
    ...drawnFrom('jsonl', train, test),
    reward: ({ response, problem }) => compare(response, problem.answer),
  };
}

/** Options that a config can have, with their defaults. `module` is the file of a custom reward. */
const WRITTEN = { reward: 'exact', module: '', ...JSONL_FIELDS, ...JSONL_REWARD_OPTIONS };

/** Reads `task.options` of a config. The result has `module` only if the reward is a module. Throws InputError. */
export function jsonlOptions(
  written: Readonly<Record<string, string | number | boolean>>,
): Partial<Omit<JsonlOptions, 'reward'> & { reward: JsonlRewardName }> & { module?: string } {
  const { reward = WRITTEN.reward, module = '', ...options } = readOptions(written, WRITTEN);
  if (reward === 'module') {
    if (module !== '') return { ...options, module };
    throw new InputError(
      'task.options.module is missing, but the reward "module" is the default function of that file. Name the file.',
    );
  }
  if (module !== '')
    throw new InputError(`task.options.module is for the reward "module", and not for "${reward}". Leave one out.`);
  return { ...options, reward: reward as JsonlRewardName };
}

/** Converts a score to a Reward. Returns any other value unchanged: the check of all rewards reports the types that it allows. */
export function scored(given: number | null | Reward): Reward {
  const score = given === null ? NaN : given;
  return typeof score === 'number' ? { score, acc: score } : score;
}
