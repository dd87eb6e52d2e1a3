/**
 * `node scripts/screenshots.mjs [NAME...]` writes pictures of the page's states to docs/images, as page-NAME.png, and README's demo.png.
 * Starts Vite's server, opens the page in a headless Chromium and acts like a visitor. All pictures together take minutes on a CPU. A state
 * whose view is missing in the page is reported and skipped.
 *
 * `node scripts/screenshots.mjs --all FOLDER [WORD...]` writes every state of test/e2e/states.spec.ts into a folder, at three sizes, light and
 * dark, with the scripted engine.
 */

/* global document, Navigator */

import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { runNode } from './lib/runNode.mjs';
import { exitOnSetupError, messageOf, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

/** @typedef {import('playwright').Page} Page */

const DESK = { width: 1440, height: 900 };
const PHONE = { width: 390, height: 844 };
const LIMIT_MS = 600_000;

/** Settings that make a step take a second or less, so that every state is reached soon. */
const QUICK =
  'n=4&set=data.trainBatchSize=8&set=actor.ppoMiniBatchSize=4&set=trainer.valBeforeTrain=false&set=trainer.testFreq=0';

/**
 * @typedef {object} State
 * @property {string} [query] of the address
 * @property {{ width: number, height: number }} [size]
 * @property {'dark' | 'light'} [colours]
 * @property {boolean} [forced] forced colours
 * @property {boolean} [phone]
 * @property {number} [steps] trained before the picture
 * @property {(page: Page) => Promise<string | void>} [act] returns the name of a missing element
 */

/**
 * Presses a button, summary or tab by its name. Reports it if it is missing.
 * @param {Page} page
 * @param {RegExp} name
 */
async function press(page, name) {
  const places = [
    page.getByRole('button', { name }),
    page.getByRole('tab', { name }),
    page.locator('summary', { hasText: name }),
  ];
  for (const place of places) {
    if ((await place.count()) === 0) continue;
    await place.first().click();
    return undefined;
  }
  return `nothing is named ${name}`;
}

/**
 * @param {Page} page
 * @param {string} id of a mount point
 */
async function showView(page, id) {
  const place = page.locator(`#${id}`);
  if ((await place.locator(':scope > *').count()) === 0) return `#${id} is empty`;
  const folded = place.locator('details:not([open]) > summary');
  if ((await folded.count()) > 0) await folded.first().click();
  await place.scrollIntoViewIfNeeded();
  return undefined;
}

/** @param {Page} page */
async function triesAreThere(page) {
  await page.locator('.try').first().waitFor({ timeout: 60_000 });
}

/** @type {Record<string, State>} */
const STATES = {
  // The picture in README: the unchanged recipe after enough steps to show curves and compared tries.
  demo: {
    size: { width: 1440, height: 1150 },
    steps: 25,
    act: (page) => page.getByText('Updating the model').waitFor({ timeout: LIMIT_MS }),
  },
  idle: { act: triesAreThere },
  'idle-dark': { colours: 'dark', act: triesAreThere },
  running: { query: QUICK, steps: 6 },
  'running-dark': { query: QUICK, steps: 6, colours: 'dark' },
  'running-forced': { query: QUICK, steps: 3, forced: true },
  settings: { act: (page) => press(page, /^Settings/) },
  words: {
    act: async (page) => {
      await page.getByRole('button', { name: 'Entropy' }).hover();
    },
  },
  inspector: {
    query: QUICK,
    steps: 4,
    act: async (page) => {
      const missing = await press(page, /Inspect tokens/);
      const token = page.locator('.token').nth(4);
      await token.evaluate((element) => element.scrollIntoView({ block: 'center' })).catch(() => {});
      await token.hover({ timeout: 5000 }).catch(() => {});
      return missing;
    },
  },
  ask: {
    query: QUICK,
    steps: 3,
    act: async (page) => {
      const missing = (await showView(page, 'ask')) ?? (await press(page, /^Ask$/));
      await page.waitForTimeout(12_000);
      return missing;
    },
  },
  rules: {
    query: QUICK,
    steps: 3,
    act: async (page) => {
      const missing = await press(page, /Change reward, loss or tools/);
      await page.getByLabel('Preset').selectOption('reward length');
      await page.locator('#rules .trial').waitFor();
      await page.locator('#rules').evaluate((element) => element.scrollIntoView());
      return missing;
    },
  },
  runs: { query: QUICK, steps: 6, act: (page) => press(page, /^Runs/) },
  fork: {
    query: `${QUICK}&set=trainer.saveFreq=2`,
    steps: 6,
    act: async (page) => {
      await page.locator('.step-menu summary').click();
      const missing = await press(page, /^Fork from/);
      await page.locator('body[data-stage="forking"]').waitFor({ timeout: LIMIT_MS }); // the run ends after its step
      return missing;
    },
  },
  broken: { query: QUICK, steps: 4, act: (page) => press(page, /^reward guessing/) },
  result: {
    query: `${QUICK}&steps=5`,
    act: async (page) => {
      await page.getByRole('button', { name: 'Start', exact: true }).click();
      await stateIs(page, 'done');
      return showView(page, 'result');
    },
  },
  refused: { query: 'lr=-1' },
  'no-gpu': { act: withoutGpu },
  phone: { phone: true, act: triesAreThere },
  'phone-running': { phone: true, query: QUICK, steps: 4 },
};

/** @param {Page} page */
async function withoutGpu(page) {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.reload();
  await page.waitForTimeout(3000);
}

/**
 * @param {Page} page
 * @param {string} state
 */
const stateIs = (page, state) =>
  page.waitForFunction((wanted) => document.body.dataset.state === wanted, state, { timeout: LIMIT_MS });

/**
 * @param {Page} page
 * @param {number} steps
 */
async function train(page, steps) {
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.waitForFunction(
    (wanted) => Number(document.querySelector('[data-chart="reward"]')?.getAttribute('data-points') ?? 0) >= wanted,
    steps,
    { timeout: LIMIT_MS },
  );
}

/**
 * @param {import('playwright').Browser} browser
 * @param {string} address
 * @param {string} file
 * @param {State} state
 * @returns {Promise<string | void>} the name of a missing element
 */
async function take(browser, address, file, { query = '', size, colours = 'light', forced, phone, steps, act }) {
  const context = await browser.newContext({
    ...{ viewport: size ?? (phone ? PHONE : DESK), colorScheme: colours, forcedColors: forced ? 'active' : 'none' },
    ...(phone && { hasTouch: true, isMobile: true, deviceScaleFactor: 2 }),
  });
  const page = await context.newPage();
  try {
    await page.goto(`${address}?${query}`);
    const isThere = () =>
      document.querySelector('#adapter[data-software]') &&
      (document.getElementById('start')?.ariaDisabled === 'false' || document.querySelector('[aria-invalid="true"]'));
    await page.waitForFunction(isThere, undefined, { timeout: 60_000 });
    if (steps) await train(page, steps);
    const missing = await act?.(page);
    if (missing) return missing;
    await page.waitForTimeout(500);
    await page.screenshot({ path: join(ROOT, 'docs', 'images', file) });
  } finally {
    await context.close();
  }
}

/** @param {string[]} names */
async function takeAll(names) {
  const [{ createServer }, { chromium }] = [await import('vite'), await import('playwright')];
  const server = await createServer({ configFile: join(ROOT, 'vite.config.ts'), server: { host: '127.0.0.1' } });
  await server.listen(0);
  const browser = await chromium.launch(webGpuLaunchOptions());
  try {
    const address = server.resolvedUrls?.local[0] ?? '';
    for (const name of names) {
      const file = name === 'demo' ? 'demo.png' : `page-${name}.png`;
      const missing = await take(browser, address, file, STATES[name]).catch(messageOf);
      process.stdout.write(`${missing ? `skipped ${name}: ${missing.split('\n')[0]}` : `docs/images/${file}`}\n`);
    }
  } finally {
    await browser.close();
    await server.close();
  }
}

/**
 * @param {string} folder
 * @param {string[]} words of the names of states
 */
function takeEveryState(folder, words) {
  mkdirSync(folder, { recursive: true });
  const named = words.length > 0 ? ['-g', words.join('|')] : [];
  const args = ['test', '--project=scripted', '--reporter=line', 'states', ...named];
  const env = { PICTURES: resolve(folder) };
  return runNode(join(ROOT, 'node_modules/@playwright/test/cli.js'), args, { cwd: ROOT, env });
}

try {
  Object.assign(process.env, setup({ browser: true }));
  const { positionals, values } = parseArgs({ allowPositionals: true, options: { all: { type: 'string' } } });
  const unknown = positionals.find((name) => !(name in STATES));
  if (values.all !== undefined) {
    process.exitCode = await takeEveryState(values.all, positionals);
  } else {
    if (unknown !== undefined)
      throw new SetupError(`There is no state "${unknown}". There are ${Object.keys(STATES).join(', ')}.`);
    await takeAll(positionals.length > 0 ? positionals : Object.keys(STATES));
  }
} catch (error) {
  exitOnSetupError(error);
}
