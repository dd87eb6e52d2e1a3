/** `--import FILE`: a user's module, loaded before the config is read, so that the config can name what it registers. */

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

/** What the module's default function is given: the command line has a copy of the library of its own. */
const LIBRARY = { registerPolicyLoss, registerAdvantage, registerRecipe, registerAgentLoop, defineLoss };

/** Throws InputError for a file that is not there, or has no default function. */
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
 * The default export of a user's module, which runs with the user's rights.
 * @param setting names it in errors
 * @param remedy what to write where there is none, as the end of a sentence
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

/** The reward that is a module's default function. Throws InputError. @param setting names it in errors */
export async function importReward(setting: string, file: string): Promise<Task['reward']> {
  const reward = (await defaultFunction(
    setting,
    file,
    'Write "export default (sample) => sample.response.length"',
  )) as JsonlReward;
  return async (sample) => scored(await reward(sample));
}

/** A module that does not parse, or throws when it is read, is the user's. */
async function load(path: string, what: string): Promise<{ default?: unknown }> {
  try {
    return (await import(/* @vite-ignore */ pathToFileURL(path).href)) as { default?: unknown };
  } catch (error) {
    throw new InputError(`${what} does not load: ${describe(error).split('\n')[0]}.`, { cause: error });
  }
}
