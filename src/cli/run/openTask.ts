/** The task a config names. */

import type { WrittenConfig } from '../../grpo/config/schema/index.ts';
import { basename, extname } from 'node:path';
import { InputError } from '../../errors.ts';
import { gsm8kToolTask, type Gsm8kProblem } from '../../tasks/gsm8k/task.ts';
import { gsm8kJsonlTask, parseGsm8kJsonl } from '../../tasks/gsm8k/jsonl.ts';
import { checkParser, NO_PROMPT } from '../../tasks/gsm8k/prompt.ts';
import { NO_SHAPING } from '../../tasks/gsm8k/reward.ts';
import { COUNTDOWN_OPTIONS, countdownTask } from '../../tasks/countdown.ts';
import { REVERSE_TEXT_OPTIONS, reverseTextTask } from '../../tasks/reverseText.ts';
import { SEARCH_QA_OPTIONS, searchQaTask } from '../../tasks/searchQa.ts';
import { withTools } from '../../tasks/shippedTools.ts';
import type { Task } from '../../tasks/task.ts';
import { readText } from '../files.ts';

type TaskConfig = WrittenConfig['task'];

/** Throws InputError for an unknown task or option, and for malformed data (with its line). */
export async function openTask(config: TaskConfig): Promise<Task> {
  if (!Object.hasOwn(TASKS, config.name))
    throw new InputError(`task.name is "${config.name}"; known tasks: ${Object.keys(TASKS).join(', ')}.`);
  if (config.path !== undefined && config.name !== 'gsm8k')
    throw new InputError(`task.path is set, but task "${config.name}" generates its problems; leave it out.`);
  return withTools(await TASKS[config.name](config), config.tools);
}

const TASKS: Record<string, (config: TaskConfig) => Task | Promise<Task>> = {
  gsm8k: async (config) => {
    const options = readOptions(config.options, { ...NO_SHAPING, ...NO_PROMPT });
    checkParser(options.parser);
    if (config.path !== undefined) {
      const { train, test } = await readGsm8k(config);
      return gsm8kJsonlTask(train, test, { shaping: options, prompt: options });
    }
    const unused = Object.keys(NO_PROMPT).find((key) => key in options);
    if (unused === undefined) return gsm8kToolTask({ shaping: options });
    throw new InputError(`task.options.${unused} is for GSM8K's own files; set task.path, or leave it out.`);
  },
  'reverse-text': ({ options }) => reverseTextTask(readOptions(options, REVERSE_TEXT_OPTIONS)),
  countdown: ({ options }) => countdownTask(readOptions(options, COUNTDOWN_OPTIONS)),
  'search-qa': ({ options }) => searchQaTask(readOptions(options, SEARCH_QA_OPTIONS)),
};

/** Problems of GSM8K's own files; without `valPath` the last eighth of the training file is held out. */
export async function readGsm8k({
  path,
  valPath,
}: TaskConfig): Promise<{ train: Gsm8kProblem[]; test: Gsm8kProblem[] }> {
  if (path === undefined) throw new InputError('task.path is missing; set it to a JSONL file of problems.');
  const all = await readProblems(path);
  if (valPath !== undefined) return { train: all, test: await readHeldOut(valPath) };
  const held = Math.ceil(all.length / 8);
  return { train: all.slice(0, -held), test: all.slice(-held) };
}

/** Held-out problems of one file; of several with the name of their set: the key, or the file's without its ending. */
async function readHeldOut(valPath: NonNullable<TaskConfig['valPath']>): Promise<Gsm8kProblem[]> {
  if (typeof valPath === 'string') return readProblems(valPath);
  const named = Array.isArray(valPath)
    ? valPath.map((path) => [basename(path, extname(path)), path] as const)
    : Object.entries(valPath);
  const twice = named.find(([name], i) => named.findIndex(([other]) => other === name) < i);
  if (twice)
    throw new InputError(
      `task.valPath has two files named "${twice[0]}", which their metrics would share; name them: {first: ..., second: ...}.`,
    );
  const sets = await Promise.all(named.map(async ([name, path]) => ({ name, problems: await readProblems(path) })));
  return sets.flatMap(({ name, problems }) => problems.map((problem) => ({ ...problem, dataSource: name })));
}

async function readProblems(path: string): Promise<Gsm8kProblem[]> {
  try {
    return parseGsm8kJsonl(await readText(path), path);
  } catch (error) {
    if (error instanceof RangeError) throw new InputError(error.message);
    throw error;
  }
}

/** The options as written. Throws InputError for one that the task does not have, or of another type than its default. */
function readOptions<T extends object>(options: TaskConfig['options'], defaults: T): Partial<T> {
  for (const [key, value] of Object.entries(options)) {
    if (!Object.hasOwn(defaults, key))
      throw new InputError(`task.options.${key} is unknown; known: ${Object.keys(defaults).join(', ')}.`);
    const type = typeof defaults[key as keyof T];
    if (typeof value !== type)
      throw new InputError(`task.options.${key} is ${JSON.stringify(value)}; allowed: a ${type}.`);
  }
  return options as Partial<T>;
}
