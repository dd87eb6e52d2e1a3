/**
 * `npm run bench:browser`: the benchmark of `npm run bench` in a headless browser. A complete run is stored in
 * bench/results/<adapter>-browser.json. Takes --only, --quick and --json like `npm run bench`. With --peer it measures only that peer.
 */

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { serveBenchPage, withPage } from './lib/benchPage.mjs';
import { exitOnSetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('../bench/peers/types.ts').PeerName} PeerName */
/** @typedef {import('playwright').Page} Page */

/** Milliseconds after which a peer is killed together with its browser. */
const PEER_LIMIT_MS = 300_000;

/** @param {string} line */
const say = (line) => void process.stderr.write(`bench: ${line}\n`);

function readOptions() {
  const flag = /** @type {const} */ ({ type: 'boolean', default: false });
  const text = /** @type {const} */ ({ type: 'string' });
  return parseArgs({ options: { only: text, peer: text, quick: flag, json: flag } }).values;
}

/**
 * Measures a peer (another library) in a separate browser process.
 * @param {string} address
 * @param {PeerName} name
 * @param {boolean} quick
 */
function askPeer(address, name, quick) {
  const limit = setTimeout(PEER_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error(`ended after ${PEER_LIMIT_MS / 1000} s`);
  });
  const run = (/** @type {Page} */ page) =>
    Promise.race([limit, page.evaluate(({ name, quick }) => globalThis.bench.peer(name, quick), { name, quick })]);
  return withPage(address, { hostSay: say }, run);
}

/**
 * @param {string} address
 * @param {{ only?: string | undefined, quick: boolean, json: boolean }} options
 */
async function runAll(address, { only, quick, json }) {
  const hostFunctions = {
    hostSay: say,
    hostAskPeer: (/** @type {PeerName} */ name, /** @type {boolean} */ isQuick) => askPeer(address, name, isQuick),
  };
  const run = (/** @type {Page} */ page) =>
    page.evaluate(({ only, quick }) => globalThis.bench.run(only, quick), { only, quick });
  const { report, failed, table, file } = await withPage(address, hostFunctions, run);
  if (quick || only !== undefined) say('not written to bench/results, where only complete runs are stored');
  else keep(file, report);
  process.stdout.write(`${json ? JSON.stringify(report, null, 2) : table}\n`);
  if (failed.length === 0) return;
  say(`failed: ${failed.join(', ')}`);
  process.exitCode = 1;
}

/**
 * @param {string} file
 * @param {unknown} report
 */
function keep(file, report) {
  const folder = join(ROOT, 'bench', 'results');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, file), `${JSON.stringify(report, null, 2)}\n`);
  say(`wrote bench/results/${file}`);
}

try {
  const options = readOptions();
  Object.assign(process.env, setup({ browser: true }));
  const { address, folder, close } = await serveBenchPage(ROOT);
  try {
    if (options.peer === undefined) await runAll(address, options);
    else
      process.stdout.write(
        `\n${JSON.stringify(await askPeer(address, /** @type {PeerName} */ (options.peer), options.quick))}\n`,
      );
  } finally {
    close();
    rmSync(folder, { recursive: true, force: true });
  }
} catch (error) {
  exitOnSetupError(error);
}
