/** Opens the task `jsonl` for a config, in a page or in Node. The caller passes the functions that read files and load a custom reward. */

import { readFiles, type WrittenPaths } from './file.ts';
import { jsonlOptions, type JsonlReward, jsonlTask } from './task.ts';
import type { SyncTask } from '../../../tasks/task.ts';

interface WrittenTask extends WrittenPaths {
  options: Readonly<Record<string, string | number | boolean>>;
}

/**
 * Opens the task. Throws InputError for invalid options, and for malformed data (with its line).
 * @param loadReward returns the default export of a module. Its arguments are the name of the setting, the path of the module, and advice
 * for the error message if the module cannot be used
 */
export async function openJsonl(
  config: WrittenTask,
  readText: (path: string) => Promise<string>,
  loadReward: (setting: string, file: string, remedy: string) => unknown,
): Promise<SyncTask> {
  const { module, ...options } = jsonlOptions(config.options);
  const remedy = 'Write "export default (sample) => sample.response === sample.problem.answer ? 1 : 0;"';
  const reward = module && ((await loadReward('task.options.module', module, remedy)) as JsonlReward);
  return jsonlTask(await readFiles(config, readText), { ...options, ...(reward && { reward }) });
}
