/** The task a config names, of the command line. */

import type { WrittenConfig } from '../../grpo/config/schema/index.ts';
import { InputError } from '../../errors.ts';
import { openShippedTask, readGsm8k as readProblems, type TaskConfig } from '../../tasks/open/shipped.ts';
import { withTools } from '../../tasks/shippedTools.ts';
import type { Task } from '../../tasks/task.ts';
import { readText } from '../files.ts';
import { defaultFunction } from '../importModule.ts';
import { withMcpServers } from './mcpServers.ts';
import { openModule } from './openModule.ts';

/** What a run, supervised or not, says of its task. */
type OpenedConfig = TaskConfig &
  Pick<WrittenConfig['task'], 'module' | 'isolated' | 'timeoutS'> &
  Partial<Pick<WrittenConfig['task'], 'mcpServers'>>;

/**
 * The task of its own name, or of a module, with the tools of the config; `close` frees what it holds. Throws InputError for an unknown
 * task or option, for malformed data (with its line), and for a module that gives no task.
 * @param reward its limit, which a module's reward in a sandbox is ended by as well
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
  if (module === undefined) return openShippedTask(config, { readText, loadReward: defaultFunction });
  if (path !== undefined || valPath !== undefined)
    throw new InputError(
      'task.path and task.valPath are set, but task.module provides its own problems. Leave them out.',
    );
  const limits = { timeoutMs: timeoutS * 1000, rewardTimeoutMs: reward && reward.timeoutS * 1000 };
  return withTools(await openModule({ module, options, isolated }, limits), tools);
}

/** Problems of GSM8K's own files; see readGsm8k of the shipped tasks. */
export const readGsm8k = (config: TaskConfig) => readProblems(config, readText);
