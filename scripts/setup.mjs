/**
 * The complete set-up: packages, a WebGPU adapter for Node, a Chromium for the tests. Plain Node without dependencies. Its findings are
 * stored, so a second start takes a few milliseconds. `node scripts/setup.mjs` runs all of it;
 * `node scripts/setup.mjs system` only installs a missing Chromium and nats-server.
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
// Findings are stored inside node_modules, so that a new install deletes them.
const MEMORY = join(ROOT, 'node_modules', '.cache', 'webgrpo', 'setup.json');

/**
 * Prepares the requested parts and returns the environment to run with. `dev: false` installs only what a run needs. Throws SetupError,
 * which says what to do.
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

/** Returns the environment in which Dawn finds an adapter. Throws SetupError if none is found. */
export function adapterEnv() {
  const asked = { icd: process.env.VK_ICD_FILENAMES ?? '', chrome: process.env.CHROME_PATH ?? '' };
  let found = recall('adapter', asked);
  if (!found || !stillThere(found)) found = remember('adapter', asked, findAdapter());
  const speed = found.software ? 'runs on the CPU: correct, but slow' : 'hardware';
  say(`adapter: ${found.name} (${speed}${found.icd ? `; ${found.icd}` : ''})`);
  return found.env;
}

/** Returns the environment that names a full Chromium. Throws SetupError if none is found. */
export function browserEnv() {
  const asked = { chrome: process.env.CHROME_PATH ?? '' };
  let found = recall('browser', asked);
  if (!found || !existsSync(found.path)) found = remember('browser', asked, { path: ensureChromium() });
  say(`browser: ${found.path}`);
  return { CHROME_PATH: found.path };
}

/**
 * The stored findings, by topic.
 * @typedef {{ adapter: import('./lib/adapter.mjs').Adapter, browser: { path: string } }} Found
 */

/**
 * Reads the stored findings. `asked` is the environment that a finding depends on.
 * @returns {{ [What in keyof Found]?: { asked: object, found: Found[What] } }}
 */
function memory() {
  return existsSync(MEMORY) ? JSON.parse(readFileSync(MEMORY, 'utf8')) : {};
}

/**
 * Returns the stored finding if its environment is the same. @template {keyof Found} What
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
    if (process.argv[2] === 'system') {
      ensureChromium();
      ensureNatsServer();
    } else setup({ adapter: true, browser: true });
  } catch (error) {
    exitOnSetupError(error);
  }
}
