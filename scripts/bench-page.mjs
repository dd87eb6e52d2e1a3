/**
 * `npm run bench:page`: measures how long a visitor of the built page waits. Builds the page (--no-build uses the existing dist/demo),
 * serves it with gzip and opens it in a headless Chromium. Prints a table, with --json one object; null = not measured, with the reason.
 *
 *   bytesToFirstClick   gzipped bodies of all that the page has requested when Start can be pressed; a run that was pressed then
 *                       starts as soon as the GPU is known, and firstTryMs counts from that press
 *   lcpMs, cls          largest contentful paint; layout shift, as Core Web Vitals counts it, from loading to the end of training
 *   firstTryMs          from the click on Start to a try on screen
 *   firstCurveMs        from the click on Start to the first point of a curve
 *   longTasks           main-thread tasks over 50 ms in two minutes of training (--short: 20 s), and the sum of their milliseconds
 *   clickToPaintP98Ms   from a click on a problem during that time to the next paint
 *   heapGrowthMb        growth of the page's heap after collection, over 60 steps (--short: 8) of a small recipe
 *   inspectorCost       share by which the median step is longer while a try's tokens are open
 */

/* global document, MutationObserver, PerformanceObserver, requestAnimationFrame, URLSearchParams */

import { loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { exitOnSetupError, messageOf, runLoud, SetupError } from './lib/say.mjs';
import { servePage } from './lib/servePage.mjs';
import { ROOT, setup } from './setup.mjs';

const LIMIT_MS = 300_000;

/** Settings that make a step take a second or less. The duration of steps stays constant, because the model learns almost nothing. */
const SMALL = {
  ...{ steps: '1000', n: '4', lr: '1e-9' },
  set: ['data.trainBatchSize=4', 'actor.ppoMiniBatchSize=4', 'trainer.valBeforeTrain=false', 'trainer.testFreq=0'],
};

/**
 * @typedef {object} Seen @property {number} pressableMs @property {number} lcpMs @property {{ at: number, value: number }[]} shifts
 * @property {{ at: number, ms: number }[]} longTasks @property {Record<number, number>} clicks milliseconds from the interaction to the
 * next paint, by id of the interaction
 */

/** Runs in the page before its own scripts: records paints, shifts, long tasks and clicks. */
function watchPage() {
  /** @type {Seen} */
  const seen = { pressableMs: 0, lcpMs: 0, shifts: [], longTasks: [], clicks: {} };
  Object.assign(globalThis, { seen });
  /** @type {(type: string, take: (entry: any) => void, more?: object) => void} */
  const watch = (type, take, more = {}) =>
    new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true, ...more });
  watch('largest-contentful-paint', ({ startTime }) => (seen.lcpMs = startTime));
  watch('layout-shift', ({ hadRecentInput, startTime, value }) => {
    if (!hadRecentInput) seen.shifts.push({ at: startTime, value });
  });
  watch('longtask', ({ startTime, duration }) => seen.longTasks.push({ at: startTime, ms: duration }));
  const event = ({ interactionId = 0, duration = 0 }) => {
    if (interactionId > 0) seen.clicks[interactionId] = Math.max(duration, seen.clicks[interactionId] ?? 0);
  };
  watch('event', event, { durationThreshold: 16 });
  const noteStart = () => {
    if (document.getElementById('start')?.ariaDisabled !== 'false') return;
    observer.disconnect();
    seen.pressableMs = performance.now();
  };
  const observer = new MutationObserver(noteStart);
  observer.observe(document, { subtree: true, childList: true, attributeFilter: ['aria-disabled'] });
}

/** @typedef {import('playwright').Page} Page */
/** @typedef {import('playwright').BrowserContext} BrowserContext */

/** @param {Page} page */
const seenOn = (page) =>
  page.evaluate(() => {
    const { seen } = /** @type {{ seen: Seen }} */ (/** @type {unknown} */ (globalThis));
    const loads = /** @type {PerformanceResourceTiming[]} */ (
      ['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type))
    ).filter(({ startTime }) => startTime <= seen.pressableMs);
    const bytesToFirstClick = loads.reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0);
    return { ...seen, bytesToFirstClick, now: performance.now() };
  });

/** @param {Page} page */
const whenReady = (page) =>
  page.waitForFunction(() => document.getElementById('start')?.ariaDisabled === 'false', undefined, { polling: 20 });

/**
 * Presses Start. Returns the milliseconds until a try is on screen, and until a curve has a point.
 * @returns {Promise<{ firstTryMs: number, firstCurveMs: number }>}
 */
function pressStart() {
  return new Promise((resolve, reject) => {
    const pressed = performance.now();
    let firstTryMs = 0;
    const look = () => {
      const state = document.body.dataset.state;
      if (state === 'failed' || state === 'no-gpu')
        return reject(new Error(document.getElementById('notices')?.innerText ?? state));
      if (!firstTryMs && document.querySelector('#rollouts .try')) firstTryMs = performance.now() - pressed;
      if (document.querySelector('[data-points]:not([data-points="0"])'))
        return resolve({ firstTryMs, firstCurveMs: performance.now() - pressed });
      requestAnimationFrame(look);
    };
    document.getElementById('start')?.click();
    look();
  });
}

/**
 * Opens the page in a new tab.
 * @param {BrowserContext} context
 * @param {string} address
 * @param {{ set?: string[], [name: string]: string | string[] | undefined }} settings
 */
async function openPage(context, address, { set = [], ...settings }) {
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT_MS);
  await page.addInitScript(watchPage);
  const query = new URLSearchParams([
    ...Object.entries(settings).map(([name, value]) => [name, String(value)]),
    ...set.map((key) => ['set', key]),
  ]);
  await page.goto(`${address}?${query}`);
  await whenReady(page);
  return page;
}

/**
 * Returns CLS: the largest sum of layout shifts within a window of at most five seconds in which shifts follow one another within a second.
 * @param {{ at: number, value: number }[]} shifts
 */
function worstShift(shifts) {
  let [worst, sum, first, last] = [0, 0, -Infinity, -Infinity];
  for (const { at, value } of shifts) {
    if (at - last > 1000 || at - first > 5000) [sum, first] = [0, at];
    [sum, last] = [sum + value, at];
    worst = Math.max(worst, sum);
  }
  return worst;
}

/**
 * Measures a visit with the unchanged recipe.
 * @param {BrowserContext} context
 * @param {string} address
 * @param {number} trainMs
 */
async function measureVisit(context, address, trainMs) {
  const page = await openPage(context, address, {});
  const first = await page.evaluate(pressStart);
  const before = await seenOn(page);
  await clickProblems(page, trainMs);
  const after = await seenOn(page);
  await page.close();
  const tasks = after.longTasks.filter(({ at }) => at >= before.now);
  // The browser records no entry for a click that is painted within 16 ms.
  const clicks = Object.values(after.clicks).sort((a, b) => a - b);
  return {
    bytesToFirstClick: after.bytesToFirstClick,
    lcpMs: round(after.lcpMs),
    cls: Number(worstShift(after.shifts).toFixed(4)),
    firstTryMs: first.firstTryMs > 0 ? round(first.firstTryMs) : null,
    firstCurveMs: round(first.firstCurveMs),
    longTasks: tasks.length,
    longTaskMs: round(tasks.reduce((sum, { ms }) => sum + ms, 0)),
    clickToPaintP98Ms: clicks.length > 0 ? clicks[Math.floor(0.98 * (clicks.length - 1))] : null,
  };
}

/**
 * Clicks one problem after another, like a visitor.
 * @param {Page} page
 * @param {number} ms
 */
async function clickProblems(page, ms) {
  const end = Date.now() + ms;
  const problems = page.locator('#rollouts .group');
  for (let click = 0; Date.now() < end; click++) {
    const count = await problems.count();
    if (count > 0) await problems.nth(click % count).click({ timeout: 5000, noWaitAfter: true });
    await page.waitForTimeout(1500);
  }
}

/** @param {Page} page */
const stepsOf = (page) =>
  page.evaluate(() => Number(document.querySelector('[data-chart="reward"]')?.getAttribute('data-points') ?? 0));

/**
 * @param {Page} page
 * @param {number} steps
 */
async function waitForSteps(page, steps) {
  const wanted = (await stepsOf(page)) + steps;
  await page.waitForFunction(
    (step) => Number(document.querySelector('[data-chart="reward"]')?.getAttribute('data-points') ?? 0) >= step,
    wanted,
    { polling: 10 },
  );
}

/**
 * @param {Page} page
 * @param {number} steps
 */
async function heapGrowth(page, steps) {
  const devtools = await page.context().newCDPSession(page);
  const used = async () => {
    for (let i = 0; i < 3; i++) await devtools.send('HeapProfiler.collectGarbage');
    return (await devtools.send('Runtime.getHeapUsage')).usedSize;
  };
  await waitForSteps(page, 3);
  const before = await used();
  await waitForSteps(page, steps);
  const growth = (await used()) - before;
  await devtools.detach();
  return Number((growth / 1e6).toFixed(3));
}

/**
 * Measures step times with the tokens of a try open and closed, in turn. Skips the step in which they are opened or closed.
 * @param {Page} page
 * @param {number} rounds
 */
async function inspectorCost(page, rounds) {
  const [open, close] = [/^Inspect tokens/, /^Show text/].map((name) => page.getByRole('button', { name }).first());
  if (
    !(await open.waitFor({ timeout: 20_000 }).then(
      () => true,
      () => false,
    ))
  )
    return { inspectorCost: null, inspectorNote: 'no try has a button "Inspect tokens"' };
  /** @type {{ open: number[], closed: number[] }} */
  const times = { open: [], closed: [] };
  for (let i = 0; i < 2 * rounds; i++) {
    const opens = i % 2 === 0;
    await (opens ? open : close).click();
    await waitForSteps(page, 2);
    const started = performance.now();
    await waitForSteps(page, 2);
    times[opens ? 'open' : 'closed'].push((performance.now() - started) / 2);
  }
  const median = (/** @type {number[]} */ all) => all.sort((a, b) => a - b)[all.length >> 1];
  return { inspectorCost: Number((median(times.open) / median(times.closed) - 1).toFixed(3)) };
}

/**
 * @param {BrowserContext} context
 * @param {string} address
 * @param {{ steps: number, rounds: number }} size
 */
async function measureSmall(context, address, { steps, rounds }) {
  const page = await openPage(context, address, SMALL);
  await page.evaluate(pressStart);
  const heapGrowthMb = await heapGrowth(page, steps);
  const inspector = await inspectorCost(page, rounds);
  await page.close();
  return { heapGrowthMb, ...inspector };
}

/** @param {number} ms */
const round = (ms) => Math.round(ms);

/** @param {boolean} short */
async function measureAll(short) {
  const { chromium } = await import('playwright');
  const server = await servePage(join(ROOT, 'dist', 'demo'));
  const browser = await chromium.launch(webGpuLaunchOptions());
  // Each visit has its own storage, so that the page does not offer the previous run.
  const visit = async (/** @type {(context: BrowserContext) => Promise<object>} */ work) => {
    const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
    return work(context).finally(() => context.close());
  };
  try {
    return {
      ...(await visit((context) => measureVisit(context, server.address, short ? 20_000 : 120_000))),
      ...(await visit((context) =>
        measureSmall(context, server.address, short ? { steps: 8, rounds: 2 } : { steps: 60, rounds: 6 }),
      )),
      short,
      loadAverage: Number(loadavg()[0].toFixed(1)),
    };
  } finally {
    await browser.close();
    server.close();
  }
}

function readOptions() {
  const flag = /** @type {const} */ ({ type: 'boolean', default: false });
  try {
    return parseArgs({ options: { json: flag, short: flag, 'no-build': flag } }).values;
  } catch (error) {
    throw new SetupError(messageOf(error));
  }
}

try {
  const options = readOptions();
  Object.assign(process.env, setup({ browser: true }));
  const vite = join(ROOT, 'node_modules', 'vite', 'bin', 'vite.js');
  if (!options['no-build'] && !runLoud(process.execPath, [vite, 'build', '--logLevel', 'warn']))
    throw new SetupError('The page did not build. Its messages are above.');
  const measured = await measureAll(options.short);
  const lines = Object.entries(measured).map(([name, value]) => `${name.padEnd(20)}${value}`);
  process.stdout.write(`${options.json ? JSON.stringify(measured, null, 2) : lines.join('\n')}\n`);
} catch (error) {
  exitOnSetupError(error);
}
