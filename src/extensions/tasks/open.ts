/** Opens the task of this repository that a config names, in a page or in Node. The caller passes the function that reads files. */

import { InputError } from '../../errors.ts';
import { gsm8kToolTask, type Gsm8kProblem } from '../../tasks/gsm8k/task.ts';
import { NO_SHAPING } from '../../tasks/gsm8k/reward.ts';
import { readOptions } from './checkOptions.ts';
import { withTools } from './tools.ts';
import type { SyncTask } from '../../tasks/task.ts';
import type { SHIPPED_TOOLS } from '../../tasks/tool.ts';

/** The fields of `task` in a config from which a shipped task is created. */
export interface TaskConfig {
  name: string;
  path?: string | undefined;
  valPath?: string | readonly string[] | Readonly<Record<string, string>> | undefined;
  options: Readonly<Record<string, string | number | boolean>>;
  tools?: readonly (typeof SHIPPED_TOOLS)[number][] | undefined;
}

/** Reads the text of a file that a config names. Throws InputError. */
export type ReadText = (path: string) => Promise<string>;

/** Functions that the page or Node provides to open a task. */
export interface Surroundings {
  readText: ReadText;
  /** Returns the default export of a module, which is the reward of a jsonl task; see openJsonl. */
  loadReward(setting: string, file: string, remedy: string): unknown;
}

/** Opens a task. Throws InputError if the task or an option is unknown, and for malformed data (with its line). */
export async function openShippedTask(config: TaskConfig, around: Surroundings): Promise<SyncTask> {
  if (!Object.hasOwn(TASKS, config.name))
    throw new InputError(
      `task.name is "${config.name}"; known tasks: ${Object.keys(TASKS).join(', ')}. Name one of them, or set task.module to your own.`,
    );
  const file = (['path', 'valPath'] as const).find((key) => config[key] !== undefined);
  if (file !== undefined && !['gsm8k', 'jsonl'].includes(config.name))
    throw new InputError(`task.${file} is set, but task "${config.name}" generates its problems. Remove task.${file}.`);
  return withTools(await TASKS[config.name](config, around), config.tools);
}

/** Functions that create each task by name. All except gsm8k-tool import their task at first use. */
const TASKS: Record<string, (config: TaskConfig, around: Surroundings) => Promise<SyncTask>> = {
  gsm8k: async (config, { readText }) => {
    const { checkParser, NO_PROMPT } = await import('./gsm8k/prompt.ts');
    const options = readOptions(config.options, { ...NO_SHAPING, ...NO_PROMPT });
    checkParser(options.parser);
    if (config.path !== undefined) {
      const { train, test } = await readGsm8k(config, readText);
      const { gsm8kJsonlTask } = await import('./gsm8k/jsonl.ts');
      return gsm8kJsonlTask(train, test, { shaping: options, prompt: options });
    }
    if (config.valPath !== undefined)
      throw new InputError(
        'task.valPath is set without task.path, so the task would generate its problems. Set both, or remove task.valPath.',
      );
    const unused = Object.keys(NO_PROMPT).find((key) => key in options);
    if (unused === undefined) return gsm8kToolTask({ shaping: options });
    throw new InputError(`task.options.${unused} is for GSM8K's own files. Set task.path, or remove the option.`);
  },
  jsonl: async (config, { readText, loadReward }) => {
    const { openJsonl } = await import('./jsonl/open.ts');
    return openJsonl(config, readText, loadReward);
  },
  'reverse-text': async ({ options }) => {
    const { REVERSE_TEXT_OPTIONS, reverseTextTask } = await import('./reverseText.ts');
    return reverseTextTask(readOptions(options, REVERSE_TEXT_OPTIONS));
  },
  countdown: async ({ options }) => {
    const { COUNTDOWN_OPTIONS, countdownTask } = await import('./countdown.ts');
    return countdownTask(readOptions(options, COUNTDOWN_OPTIONS));
  },
  'search-qa': async ({ options }) => {
    const { SEARCH_QA_OPTIONS, searchQaTask } = await import('./searchQa.ts');
    return searchQaTask(readOptions(options, SEARCH_QA_OPTIONS));
  },
  adventure: async ({ options }) => {
    const { ADVENTURE_OPTIONS, adventureTask } = await import('./adventure.ts');
    return adventureTask(readOptions(options, ADVENTURE_OPTIONS));
  },
  'tic-tac-toe': async ({ options }) => {
    const { TIC_TAC_TOE_OPTIONS, ticTacToeTask } = await import('./ticTacToe.ts');
    return ticTacToeTask(readOptions(options, TIC_TAC_TOE_OPTIONS));
  },
};

/** Reads training and held-out problems from GSM8K's own files. Without `valPath`, the last eighth of the training file is held out. */
export async function readGsm8k(
  config: TaskConfig,
  readText: ReadText,
): Promise<{ train: Gsm8kProblem[]; test: Gsm8kProblem[] }> {
  const { readFiles, splitProblems } = await import('./jsonl/file.ts');
  const { parseGsm8kJsonl } = await import('./gsm8k/jsonl.ts');
  return splitProblems(await readFiles(config, readText), ({ file, text }) => parseGsm8kJsonl(text, file));
}
