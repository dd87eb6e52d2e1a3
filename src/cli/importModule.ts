/** `--import FILE`: loads a user's module before the config is read, so that the config can name what the module registers. */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, InputError } from '../errors.ts';
import { registerAdvantage, registerPolicyLoss, registerRecipe } from '../grpo/config/register.ts';
import { defineLoss } from '../grpo/losses/index.ts';
import { registerAgentLoop } from '../rollout/agent/loop.ts';
import { type JsonlReward, scored } from '../tasks/jsonl/task.ts';
import type { Task } from '../tasks/task.ts';
import type { FlagSpec } from './args.ts';

export const IMPORT_FLAG: Record<string, FlagSpec> = {
  import: {
    value: 'FILE',
    repeatable: true,
    help: 'a module that registers losses, advantages, recipes or agent loops; several may be given',
  },
};

/** Argument of the module's default function. The module must use this copy of the library, because the command line contains its own. */
const LIBRARY = { registerPolicyLoss, registerAdvantage, registerRecipe, registerAgentLoop, defineLoss };

/** Loads modules and calls their default functions. Throws InputError for a missing file, or one without a default function. */
export async function importModules(files: readonly string[]): Promise<void> {
  for (const file of files) {
    const register = await defaultFunction(
      '--import',
      file,
      'Write "export default ({ registerPolicyLoss }) => { ... }"',
    );
    await register(LIBRARY);
  }
}

/**
 * Returns the default export of a user's module, which runs with the user's rights.
 * @param setting name of the setting in errors
 * @param remedy end of the error's sentence: what to write if the export is missing
 */
export async function defaultFunction(
  setting: string,
  file: string,
  remedy: string,
): Promise<(...args: unknown[]) => unknown> {
  const path = resolve(file);
  if (!existsSync(path)) throw new InputError(`${setting}: there is no ${file}.`);
  const module = await load(path, `${setting} ${file}`);
  if (typeof module.default === 'function') return module.default as (...args: unknown[]) => unknown;
  throw new InputError(`${setting} ${file}: it has no default export that is a function. ${remedy}.`);
}

/** Returns the reward that is a module's default function. Throws InputError. @param setting name of the setting in errors */
export async function importReward(setting: string, file: string): Promise<Task['reward']> {
  const reward = (await defaultFunction(
    setting,
    file,
    'Write "export default (sample) => sample.response.length"',
  )) as JsonlReward;
  return async (sample) => scored(await reward(sample));
}

/** Imports a module. If it does not parse or throws while it loads, the error says that the module is at fault. */
async function load(path: string, what: string): Promise<{ default?: unknown }> {
  try {
    return (await import(/* @vite-ignore */ pathToFileURL(path).href)) as { default?: unknown };
  } catch (error) {
    throw new InputError(`${what} does not load: ${describe(error).split('\n')[0]}.`, { cause: error });
  }
}
