/** The task a config names. */

import type { WrittenConfig } from '../grpo/configSchema.ts';
import { InputError } from '../model/errors.ts';
import { gsm8kToolTask, type Gsm8kProblem } from '../tasks/gsm8k.ts';
import { gsm8kJsonlTask, parseGsm8kJsonl } from '../tasks/gsm8kJsonl.ts';
import { NO_SHAPING } from '../tasks/gsm8kReward.ts';
import type { Task } from '../tasks/task.ts';
import { readText } from './files.ts';

type TaskConfig = WrittenConfig['task'];

/** Throws InputError for an unknown task or option, and for malformed data (with its line). */
export async function openTask(config: TaskConfig): Promise<Task> {
  const { name, path, options } = config;
  if (name !== 'gsm8k') throw new InputError(`task.name is "${name}"; known tasks: gsm8k.`);
  const shaping = numberOptions(options, Object.keys(NO_SHAPING));
  if (path === undefined) return gsm8kToolTask({ shaping });
  const { train, test } = await readGsm8k(config);
  return gsm8kJsonlTask(train, test, { shaping });
}

/** Problems of GSM8K's own files; without `valPath` the last eighth of the training file is held out. */
export async function readGsm8k({
  path,
  valPath,
}: TaskConfig): Promise<{ train: Gsm8kProblem[]; test: Gsm8kProblem[] }> {
  if (path === undefined) throw new InputError('task.path is missing; set it to a JSONL file of problems.');
  const all = await readProblems(path);
  if (valPath !== undefined) return { train: all, test: await readProblems(valPath) };
  const held = Math.ceil(all.length / 8);
  return { train: all.slice(0, -held), test: all.slice(-held) };
}

async function readProblems(path: string): Promise<Gsm8kProblem[]> {
  try {
    return parseGsm8kJsonl(await readText(path), path);
  } catch (error) {
    if (error instanceof RangeError) throw new InputError(error.message);
    throw error;
  }
}

function numberOptions(options: TaskConfig['options'], known: string[]): Record<string, number> {
  for (const [key, value] of Object.entries(options)) {
    if (!known.includes(key)) throw new InputError(`task.options.${key} is unknown; known: ${known.join(', ')}.`);
    if (typeof value !== 'number')
      throw new InputError(`task.options.${key} is ${JSON.stringify(value)}; allowed: a number.`);
  }
  return options as Record<string, number>;
}
