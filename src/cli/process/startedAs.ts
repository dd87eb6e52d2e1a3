/** Finds out by which command the user started this program, for messages that tell the user what to type. */

import { basename, delimiter, join, relative, sep } from 'node:path';
import { currentIo } from './io.ts';

/**
 * Returns "npm run -s webgrpo --" in a checkout (its starter script sets an environment variable), "npx webgrpo" for a package installed in
 * a folder, "webgrpo" for one on the PATH.
 * @param script path of the program as Node received it, with symbolic links not followed
 */
export function startedAs(env: NodeJS.ProcessEnv = currentIo().env, script = process.argv[1] ?? ''): string {
  if (env['WEBGRPO_STARTED_AS']) return env['WEBGRPO_STARTED_AS'];
  const folder = script.slice(0, script.length - basename(script).length - 1);
  const isOnPath = (env['PATH'] ?? '').split(delimiter).includes(folder) && !folder.includes(`node_modules${sep}`);
  if (env['npm_command'] === 'exec' || (script.includes('node_modules') && !isOnPath)) return 'npx webgrpo';
  return isOnPath ? 'webgrpo' : `node ${script}`;
}

/** Like `startedAs`, for a user who will be in another folder. `npm run` would run a checkout's command in the checkout's folder. */
export function startedIn(folder: string, env: NodeJS.ProcessEnv = currentIo().env): string {
  const checkout = env['WEBGRPO_CHECKOUT'];
  return checkout ? `node ${quoted(join(relative(folder, checkout), 'scripts', 'webgrpo.mjs'))}` : startedAs(env);
}

/** Quotes a word for a shell, if needed. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
