/** The task `jsonl` of a config, in a page and in Node alike: what reads its files, and its own reward, is given. */

import { readFiles, type WrittenPaths } from './file.ts';
import { jsonlOptions, type JsonlReward, jsonlTask } from './task.ts';
import type { SyncTask } from '../task.ts';

interface WrittenTask extends WrittenPaths {
  options: Readonly<Record<string, string | number | boolean>>;
}

/**
 * Throws InputError for options that do not fit, and for malformed data (with its line).
 * @param loadReward the default function of a module; the parameters name the setting, the module and what to write where there is none
 */
export async function openJsonl(
  config: WrittenTask,
  readText: (path: string) => Promise<string>,
  loadReward: (setting: string, file: string, remedy: string) => unknown,
): Promise<SyncTask> {
  const { module, ...options } = jsonlOptions(config.options);
  const remedy = 'write "export default (sample) => sample.response === sample.problem.answer ? 1 : 0;"';
  const reward = module && ((await loadReward('task.options.module', module, remedy)) as JsonlReward);
  return jsonlTask(await readFiles(config, readText), { ...options, ...(reward && { reward }) });
}
