/**
 * `npm run bench:browser`: the benchmark of `npm run bench` in a page, headless; a whole run is kept in
 * bench/results/<adapter>-browser.json. Takes --only, --quick and --json as there. With --peer it is that peer's process.
 */

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { serveBenchPage, withPage } from './lib/benchPage.mjs';
import { exitOnSetupError, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** A peer that takes longer is ended with its browser. */
const PEER_LIMIT_MS = 300_000;

const say = (line) => void process.stderr.write(`bench: ${line}\n`);

function readOptions() {
  const flag = { type: 'boolean', default: false };
  const options = { only: { type: 'string' }, peer: { type: 'string' }, quick: flag, json: flag };
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    throw new SetupError(error.message);
  }
}

/** A peer in a browser process of its own. */
function askPeer(address, name, quick) {
  const limit = setTimeout(PEER_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error(`ended after ${PEER_LIMIT_MS / 1000} s`);
  });
  const run = (page) => Promise.race([limit, page.evaluate(([n, q]) => globalThis.bench.peer(n, q), [name, quick])]);
  return withPage(address, { hostSay: say }, run);
}

async function runAll(address, { only, quick, json }) {
  const hostFunctions = { hostSay: say, hostAskPeer: (name, isQuick) => askPeer(address, name, isQuick) };
  const run = (page) => page.evaluate(([o, q]) => globalThis.bench.run(o ?? undefined, q), [only, quick]);
  const { report, failed, table, file } = await withPage(address, hostFunctions, run);
  if (quick || only !== undefined) say('not written to bench/results, where only whole runs are kept');
  else keep(file, report);
  process.stdout.write(`${json ? JSON.stringify(report, null, 2) : table}\n`);
  if (failed.length === 0) return;
  say(`failed: ${failed.join(', ')}`);
  process.exitCode = 1;
}

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
    else process.stdout.write(`\n${JSON.stringify(await askPeer(address, options.peer, options.quick))}\n`);
  } finally {
    close();
    rmSync(folder, { recursive: true, force: true });
  }
} catch (error) {
  exitOnSetupError(error);
}
