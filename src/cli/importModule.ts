/** `--import FILE`: a user's module, loaded before the config is read, so that the config can name what it registers. */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { InputError } from '../errors.ts';
import { registerAdvantage, registerPolicyLoss, registerRecipe } from '../grpo/config/register.ts';
import { defineLoss } from '../grpo/losses/index.ts';
import { registerAgentLoop } from '../rollout/agent/loop.ts';
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
    const path = resolve(file);
    if (!existsSync(path)) throw new InputError(`--import: there is no ${file}.`);
    const module = (await import(/* @vite-ignore */ pathToFileURL(path).href)) as { default?: unknown };
    if (typeof module.default !== 'function')
      throw new InputError(
        `--import ${file}: it has no default export that is a function; write "export default ({ registerPolicyLoss }) => { ... }".`,
      );
    await (module.default as (library: typeof LIBRARY) => unknown)(LIBRARY);
  }
}
