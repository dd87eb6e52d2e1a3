/**
 * `npm run bench:startup`: measures how soon the built page can be used, and how soon it decodes. Opens the page in a headless Chromium
 * with a new profile, then again with warm caches (best of --rounds). Prints JSON. With --keep, stores it in the adapter's file in
 * bench/results, as `startup`.
 *
 *   interactiveMs   from the start of loading until Start can be pressed and the main thread is idle
 *   firstDecodeMs   from pressing Start until a sample of at most two tokens has ended: a prompt, one decode step, its score
 */

/* global document, navigator, requestIdleCallback, setTimeout, URLSearchParams */

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { exitOnSetupError, runLoud, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** Settings that limit the run to its first samples. Everything else is as in the recipe. */
const SET = ['data.maxResponseLength=2', 'trainer.valBeforeTrain=false', 'trainer.testFreq=0'];
const LIMIT_MS = 120_000;

/** Runs in the page before its own scripts: records when Start can be pressed and the main thread is idle. */
function watchStart() {
  const look = () => {
    const button = document.getElementById('start');
    if (button?.ariaDisabled === 'false')
      requestIdleCallback(() => (document.body.dataset.interactiveMs = String(performance.now())));
    else setTimeout(look, 5);
  };
  look();
}

/**
 * Presses Start and waits for the first sample. Returns durations in milliseconds, measured by changes that a visitor sees.
 * @returns {Promise<{ firstDecodeMs: number, loadedMs?: number }>}
 */
function firstSample() {
  return new Promise((resolve, reject) => {
    const started = performance.now();
    const byId = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
    /** @type {{ loadedMs?: number }} */
    const phases = {};
    const look = () => {
      const [state, now] = [document.body.dataset.state, byId('status-now').textContent];
      if (state === 'running') phases.loadedMs ??= performance.now() - started;
      if (/Generating [1-9]/.test(now)) resolve({ firstDecodeMs: performance.now() - started, ...phases });
      else if (state === 'failed' || state === 'no-gpu') reject(new Error(byId('notices').innerText));
      else setTimeout(look, 5);
    };
    byId('start').click();
    look();
  });
}

/**
 * @param {import('playwright').BrowserContext} context
 * @param {string} address
 */
async function measure(context, address) {
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  await page.addInitScript(watchStart);
  await page.goto(address);
  await page.waitForFunction(() => document.body.dataset.interactiveMs !== undefined, undefined, { polling: 20 });
  const interactiveMs = Number(await page.evaluate(() => document.body.dataset.interactiveMs));
  const rest = await page.evaluate(firstSample);
  const adapter = await page.evaluate(async () => {
    const adapter = await navigator.gpu.requestAdapter();
    const { info } = /** @type {GPUAdapter} */ (adapter);
    return [info.vendor, info.architecture].filter(Boolean).join('-').toLowerCase();
  });
  await page.close();
  return { adapter, times: { interactiveMs, ...rest } };
}

/** @typedef {{ interactiveMs: number, firstDecodeMs: number, loadedMs?: number }} Times */

/** @param {Times[]} runs */
const least = (runs) => {
  const names = /** @type {(keyof Times)[]} */ (Object.keys(runs[0]));
  return Object.fromEntries(names.map((name) => [name, Math.min(...runs.map((run) => run[name] ?? Infinity))]));
};

/** @param {number} rounds */
async function measureAll(rounds) {
  const [{ preview }, { chromium }] = [await import('vite'), await import('playwright')];
  const server = await preview({
    root: ROOT,
    configFile: join(ROOT, 'vite.config.ts'),
    preview: { host: '127.0.0.1' },
  });
  const query = new URLSearchParams(SET.map((set) => ['set', set]));
  const address = `${server.resolvedUrls?.local[0]}?${query}`;
  const profile = mkdtempSync(join(tmpdir(), 'startup-'));
  // Each round starts a new browser: one that still compiles kernels of the previous page would delay the next measurement.
  const once = async () => {
    const context = await chromium.launchPersistentContext(profile, webGpuLaunchOptions());
    return measure(context, address).finally(() => context.close());
  };
  try {
    const fresh = await once();
    /** @type {Times[]} */
    const warm = [];
    for (let i = 0; i < rounds; i++) warm.push((await once()).times);
    return { adapter: fresh.adapter, startup: { ...least(warm), fresh: fresh.times, loadAverage: loadavg()[0] } };
  } finally {
    await server.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

/** @param {{ adapter: string, startup: object }} measured */
function keep({ adapter, startup }) {
  const file = join('bench', 'results', `${adapter}.json`);
  if (!existsSync(join(ROOT, file))) throw new SetupError(`${file} does not exist. Run "npm run bench" first.`);
  const report = JSON.parse(readFileSync(join(ROOT, file), 'utf8'));
  writeFileSync(join(ROOT, file), `${JSON.stringify({ ...report, startup }, null, 2)}\n`);
  process.stderr.write(`bench: stored in ${file}\n`);
}

try {
  const { values: options } = parseArgs({
    options: { rounds: { type: 'string', default: '3' }, keep: { type: 'boolean', default: false } },
  });
  const rounds = Number(options.rounds);
  if (!(rounds >= 1)) throw new SetupError(`--rounds is "${options.rounds}"; allowed: a number of at least 1.`);
  Object.assign(process.env, setup({ browser: true }));
  if (!runLoud(process.execPath, [join(ROOT, 'node_modules', 'vite', 'bin', 'vite.js'), 'build', '--logLevel', 'warn']))
    throw new SetupError('The page did not build. Its messages are above.');
  const measured = await measureAll(rounds);
  if (options.keep) keep(measured);
  process.stdout.write(`${JSON.stringify(measured, null, 2)}\n`);
} catch (error) {
  exitOnSetupError(error);
}
