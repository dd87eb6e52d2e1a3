/** How this command line was started, for the lines that it tells a user to type. */

import { basename, delimiter, join, relative, sep } from 'node:path';
import { currentIo } from './io.ts';

/**
 * "npm run -s webgrpo --" in a checkout (its starter says so), "npx webgrpo" for an installed package, "webgrpo" for one on the
 * PATH.
 * @param script the program's path as Node was given it, links not followed
 */
export function startedAs(env: NodeJS.ProcessEnv = currentIo().env, script = process.argv[1] ?? ''): string {
  if (env['WEBGRPO_STARTED_AS']) return env['WEBGRPO_STARTED_AS'];
  const folder = script.slice(0, script.length - basename(script).length - 1);
  const isOnPath = (env['PATH'] ?? '').split(delimiter).includes(folder) && !folder.includes(`node_modules${sep}`);
  if (env['npm_command'] === 'exec' || (script.includes('node_modules') && !isOnPath)) return 'npx webgrpo';
  return isOnPath ? 'webgrpo' : `node ${script}`;
}

/** The same for a user who goes to another folder first: npm would run a checkout's command in the checkout. */
export function startedIn(folder: string, env: NodeJS.ProcessEnv = currentIo().env): string {
  const checkout = env['WEBGRPO_CHECKOUT'];
  return checkout ? `node ${quoted(join(relative(folder, checkout), 'scripts', 'webgrpo.mjs'))}` : startedAs(env);
}

/** Characters of a sentence; what it quotes may be as long as a command line can be. */
const LONGEST_SENTENCE = 1000;

/** A message on one line: it may quote anything that was given. */
export function oneLine(message: string): string {
  const text = message.replace(/\p{Cc}/gu, (character) => JSON.stringify(character).slice(1, -1));
  return text.length > LONGEST_SENTENCE ? `${text.slice(0, LONGEST_SENTENCE - 203)}...${text.slice(-200)}` : text;
}

/** A word as a shell takes it unchanged. */
export const quoted = (word: string): string =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
