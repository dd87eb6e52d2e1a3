/**
 * All the set-up there is: packages, a WebGPU adapter for Node, a Chromium for the tests. Plain Node, no dependencies.
 * Its findings are remembered, so a second start costs a few milliseconds. `node scripts/setup.mjs` runs all of it; words after it (adapter,
 * browser, nats-server) choose.
 */

import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findAdapter, stillThere } from './lib/adapter.mjs';
import { ensureChromium } from './lib/chromium.mjs';
import { ensureNatsServer } from './lib/natsServer.mjs';
import { ensurePackages } from './lib/packages.mjs';
import { exitOnSetupError, say } from './lib/say.mjs';

export const ROOT = fileURLToPath(new URL('..', import.meta.url));
// Inside node_modules: a fresh install forgets it.
const MEMORY = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'setup.json');

/**
 * Prepares what is asked for and returns the environment to run with. `dev: false` installs what a run needs and no more.
 * Throws SetupError, which says what to do.
 */
export function setup({ dev = true, adapter = false, browser = false } = {}) {
  process.chdir(ROOT);
  ensurePackages(ROOT, { dev });
  /** @type {Record<string, string>} */
  const env = {};
  if (adapter) Object.assign(env, adapterEnv());
  if (browser) Object.assign(env, browserEnv());
  return env;
}

/** The environment in which Dawn finds an adapter. Throws SetupError if there is none. */
export function adapterEnv() {
  const asked = { icd: process.env.VK_ICD_FILENAMES ?? '', chrome: process.env.CHROME_PATH ?? '' };
  let found = recall('adapter', asked);
  if (!found || !stillThere(found)) found = remember('adapter', asked, findAdapter());
  const speed = found.software ? 'runs on the CPU: right, but slow' : 'hardware';
  say(`adapter: ${found.name} (${speed}${found.icd ? `; ${found.icd}` : ''})`);
  return found.env;
}

/** The environment that names a full Chromium. Throws SetupError if there is none. */
export function browserEnv() {
  const asked = { chrome: process.env.CHROME_PATH ?? '' };
  let found = recall('browser', asked);
  if (!found || !existsSync(found.path)) found = remember('browser', asked, { path: ensureChromium() });
  say(`browser: ${found.path}`);
  return { CHROME_PATH: found.path };
}

/**
 * The findings, by question.
 * @typedef {{ adapter: import('./lib/adapter.mjs').Adapter, browser: { path: string } }} Found
 */

/**
 * Earlier answers, each with what it was asked for.
 * @returns {{ [What in keyof Found]?: { asked: object, found: Found[What] } }}
 */
function memory() {
  return existsSync(MEMORY) ? JSON.parse(readFileSync(MEMORY, 'utf8')) : {};
}

/**
 * An earlier answer to the same question.
 * @template {keyof Found} What
 * @param {What} what
 * @param {object} asked
 * @returns {Found[What] | undefined}
 */
function recall(what, asked) {
  const entry = memory()[what];
  return entry && JSON.stringify(entry.asked) === JSON.stringify(asked) ? entry.found : undefined;
}

/**
 * @template {keyof Found} What
 * @param {What} what
 * @param {object} asked
 * @param {Found[What]} found
 */
function remember(what, asked, found) {
  mkdirSync(join(MEMORY, '..'), { recursive: true });
  writeFileSync(MEMORY, JSON.stringify({ ...memory(), [what]: { asked, found } }, null, 2));
  return found;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  try {
    const words = process.argv.slice(2);
    const isAsked = (/** @type {string} */ program) => words.length === 0 || words.includes(program);
    setup({ adapter: isAsked('adapter'), browser: isAsked('browser') });
    if (words.includes('nats-server')) ensureNatsServer();
  } catch (error) {
    exitOnSetupError(error);
  }
}
