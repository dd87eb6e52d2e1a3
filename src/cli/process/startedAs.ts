/** Finds out how this command line was started, for commands that messages tell a user to type. */

import { basename, delimiter, join, relative, sep } from 'node:path';
import { currentIo } from './io.ts';

/**
 * Returns "npm run -s webgrpo --" in a checkout (its starter script sets a variable), "npx webgrpo" for an installed package, "webgrpo" for
 * one on the PATH.
 * @param script path of the program as Node received it, without following links
 */
export function startedAs(env: NodeJS.ProcessEnv = currentIo().env, script = process.argv[1] ?? ''): string {
  if (env['WEBGRPO_STARTED_AS']) return env['WEBGRPO_STARTED_AS'];
  const folder = script.slice(0, script.length - basename(script).length - 1);
  const isOnPath = (env['PATH'] ?? '').split(delimiter).includes(folder) && !folder.includes(`node_modules${sep}`);
  if (env['npm_command'] === 'exec' || (script.includes('node_modules') && !isOnPath)) return 'npx webgrpo';
  return isOnPath ? 'webgrpo' : `node ${script}`;
}

/** Like `startedAs`, for a user who first changes to another folder. npm would run a checkout's command in the checkout. */
export function startedIn(folder: string, env: NodeJS.ProcessEnv = currentIo().env): string {
  const checkout = env['WEBGRPO_CHECKOUT'];
  return checkout ? `node ${quoted(join(relative(folder, checkout), 'scripts', 'webgrpo.mjs'))}` : startedAs(env);
}

/** Quotes a word for a shell, if needed. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
