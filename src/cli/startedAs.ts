/** How this command line was started, for the lines that it tells a user to type. */

import { basename, delimiter, sep } from 'node:path';

/**
 * "npm run -s webgrpo --" in a checkout (its starter says so), "npx webgrpo" for an installed package, "webgrpo" for one on the
 * PATH.
 * @param script the program's path as Node was given it, links not followed
 */
export function startedAs(env: NodeJS.ProcessEnv = process.env, script = process.argv[1] ?? ''): string {
  if (env['WEBGRPO_STARTED_AS']) return env['WEBGRPO_STARTED_AS'];
  const folder = script.slice(0, script.length - basename(script).length - 1);
  const isOnPath = (env['PATH'] ?? '').split(delimiter).includes(folder) && !folder.includes(`node_modules${sep}`);
  if (env['npm_command'] === 'exec' || (script.includes('node_modules') && !isOnPath)) return 'npx webgrpo';
  return isOnPath ? 'webgrpo' : `node ${script}`;
}

/** A word as a shell takes it unchanged. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
