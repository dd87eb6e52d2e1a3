/** Opens the task of a config, on the command line. */

import type { WrittenConfig } from '../../grpo/config/schema/index.ts';
import { InputError } from '../../errors.ts';
import {
  openShippedTask,
  readGsm8k as readProblems,
  type TaskConfig,
  withTools,
} from '../../extensions/tasks/index.ts';
import { sha256Of } from '../../extensions/modules/index.ts';
import type { Task } from '../../tasks/task.ts';
import { readText } from '../files.ts';
import { defaultFunction } from '../importModule.ts';
import { withMcpServers } from './mcpServers.ts';
import { openModule } from '../openModule.ts';

/** Task settings that both kinds of config have: those of GRPO and of supervised training. */
type OpenedConfig = TaskConfig &
  Pick<WrittenConfig['task'], 'module' | 'isolated' | 'timeoutS'> &
  Partial<Pick<WrittenConfig['task'], 'mcpServers'>>;

/**
 * Opens a shipped task, or the task of a module, and adds the tools of task.mcpServers. Call `close` of the task after use. Throws
 * InputError for an unknown task or option, for malformed data (with the line), and for a module that does not return a task.
 * @param reward settings of the reward; its time limit applies to the reward of a module in the sandbox
 */
export async function openTask(config: OpenedConfig, reward?: { timeoutS: number }): Promise<Task> {
  const task = await openOwn(config, reward);
  try {
    return await withMcpServers(task, config.mcpServers);
  } catch (error) {
    task.close?.();
    throw error;
  }
}

async function openOwn(config: OpenedConfig, reward: { timeoutS: number } | undefined): Promise<Task> {
  const { module, path, valPath, timeoutS, options, isolated, tools } = config;
  if (module === undefined) return openShipped(config);
  if (path !== undefined || valPath !== undefined)
    throw new InputError(
      'task.path and task.valPath are set, but task.module provides its own problems. Leave them out.',
    );
  const limits = { timeoutMs: timeoutS && timeoutS * 1000, rewardTimeoutMs: reward && reward.timeoutS * 1000 };
  return withTools(await openModule({ module, options, isolated }, limits), tools);
}

/** Opens a shipped task. Adds the SHA-256 of the files that the task reads. */
async function openShipped(config: TaskConfig): Promise<Task> {
  const texts = new Map<string, string>();
  const read = async (path: string): Promise<string> => {
    const text = await readText(path);
    texts.set(path, text);
    return text;
  };
  const loadReward = async (setting: string, file: string, remedy: string) => {
    const reward = await defaultFunction(setting, file, remedy);
    await read(file);
    return reward;
  };
  const task = await openShippedTask(config, { readText: read, loadReward });
  return texts.size === 0 ? task : { ...task, sha256: await sha256Of(texts) };
}

/** Reads the problems of GSM8K's original files. See `readGsm8k` of the shipped tasks. */
export const readGsm8k = (config: TaskConfig) => readProblems(config, readText);
