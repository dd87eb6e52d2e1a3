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
 *
 * `-- --lessons` measures the lessons instead, each in a new profile; `--lesson 3-run` measures one. A row for each live button:
 *
 *   figure    milliseconds from the start of the navigation until the first figure is on screen (aim: 1,000)
 *   number    milliseconds from the press until the first number of the live work (aim: 5,000). The first button of a lesson opens the model
 *   all       seconds until the live work has ended (aim: 60); with --short the work is stopped after its first number
 */

/* global document, HTMLElement, MutationObserver, PerformanceObserver, requestAnimationFrame, URLSearchParams */

import { loadavg } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { lessonPages } from './lib/lessons.mjs';
import { exitOnSetupError, runLoud, say, SetupError } from './lib/say.mjs';
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
 * Presses Start by the mouse, because the browser counts what moves after a script's click as a layout shift. Returns the milliseconds until
 * a try is on screen, and until a curve has a point.
 * @param {Page} page
 */
async function pressStart(page) {
  const watched = page.evaluate(watchStart);
  await page.locator('#start').click();
  return watched;
}

/** @returns {Promise<{ firstTryMs: number, firstCurveMs: number }>} */
function watchStart() {
  return new Promise((resolve, reject) => {
    let [pressed, firstTryMs] = [0, 0];
    const begin = () => {
      pressed = performance.now();
      look();
    };
    const look = () => {
      const state = document.body.dataset.state;
      if (state === 'failed' || state === 'no-gpu')
        return reject(new Error(document.getElementById('notices')?.innerText ?? state));
      if (!firstTryMs && document.querySelector('#rollouts .try')) firstTryMs = performance.now() - pressed;
      if (document.querySelector('[data-points]:not([data-points="0"])'))
        return resolve({ firstTryMs, firstCurveMs: performance.now() - pressed });
      requestAnimationFrame(look);
    };
    document.getElementById('start')?.addEventListener('click', begin, { once: true });
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
  const first = await pressStart(page);
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
  await pressStart(page);
  const heapGrowthMb = await heapGrowth(page, steps);
  const inspector = await inspectorCost(page, rounds);
  await page.close();
  return { heapGrowthMb, ...inspector };
}

/** @param {number} ms */
const round = (ms) => Math.round(ms);

/** Runs in a lesson before its own scripts: notes when the first figure is on screen. */
function watchFigure() {
  const observer = new MutationObserver(() => {
    if (!document.querySelector('[data-figure] .says')) return;
    observer.disconnect();
    requestAnimationFrame(() => Object.assign(globalThis, { figureMs: performance.now() }));
  });
  observer.observe(document, { subtree: true, childList: true });
}

/**
 * Runs in a lesson: answers the predictions, opens the folds, and marks the places of the live buttons. Returns the texts of the buttons.
 */
function findCells() {
  for (const button of document.querySelectorAll('.predict button'))
    if (button instanceof HTMLElement && /^Look/.test(button.textContent ?? '')) button.click();
  return new Promise((resolve) =>
    // Preact draws what the predictions hid in the next frame.
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        for (const fold of document.querySelectorAll('main details.fold')) fold.setAttribute('open', '');
        const buttons = [...document.querySelectorAll('main button')].filter((one) =>
          /on two CPU cores\)$/.test(one.textContent ?? ''),
        );
        buttons.forEach((button, i) => button.parentElement?.setAttribute('data-cell', `${i}`));
        resolve(buttons.map(({ textContent }) => textContent?.replace(/ \(about.*/, '') ?? ''));
      }),
    ),
  );
}

/**
 * Runs in a lesson: presses a live button. Resolves to the milliseconds until its first number, and until its end; with `short` it is
 * stopped before that.
 * @param {{ cell: number, short: boolean }} of
 * @returns {Promise<{ numberMs: number, allMs: number | null }>}
 */
function pressCell({ cell, short }) {
  const place = document.querySelector(`[data-cell="${cell}"]`);
  const button = (/** @type {RegExp} */ name) =>
    [...(place?.querySelectorAll('button') ?? [])].find((one) => name.test(one.textContent ?? ''));
  // Buttons that do the same work share the duration of the last time.
  const live = /\((about .* on two CPU cores|last time .*)\)$/;
  return new Promise((resolve, reject) => {
    const pressed = performance.now();
    let numberMs = 0;
    const look = () => {
      const said = place?.querySelector('[role=status]')?.textContent ?? '';
      if (/WebGPU| stay\.$/.test(said)) return reject(new Error(said));
      if (!numberMs && /\d/.test(said)) numberMs = performance.now() - pressed;
      const ended = numberMs && button(live);
      if (numberMs && (short || ended)) {
        if (!ended) button(/^Stop$/)?.click();
        return resolve({ numberMs, allMs: ended ? performance.now() - pressed : null });
      }
      requestAnimationFrame(look);
    };
    const start = button(live);
    if (!start) return reject(new Error(`Live button ${cell} of the lesson is gone.`));
    start.click();
    look();
  });
}

/**
 * Measures the lessons of these folders, each in a new profile.
 * @param {string[]} names
 * @param {boolean} short
 */
async function measureLessons(names, short) {
  return withVisits(async (visit, address) => {
    /** @type {{ lesson: string, figure: number, button: string | null, number: number | null, all: number | null }[]} */
    const rows = [];
    for (const lesson of names)
      await visit(async (context) => {
        const page = await context.newPage();
        page.setDefaultTimeout(LIMIT_MS);
        await page.addInitScript(watchFigure);
        await page.goto(`${address}lessons/${lesson}/index.html`);
        const shown = await page.waitForFunction(() => Reflect.get(globalThis, 'figureMs'), undefined, { polling: 20 });
        const figure = round(Number(await shown.jsonValue()));
        const cells = /** @type {string[]} */ (await page.evaluate(findCells));
        for (const [cell, name] of cells.entries()) {
          const { numberMs, allMs } = await page.evaluate(pressCell, { cell, short });
          rows.push({ lesson, figure, button: name, number: round(numberMs), all: allMs && round(allMs / 1000) });
          say(`${lesson}, ${name}: first number after ${round(numberMs)} ms`);
        }
        if (cells.length === 0) rows.push({ lesson, figure, button: null, number: null, all: null });
      });
    return rows;
  });
}

/**
 * Serves the built page, and calls `work` with a function that opens a browser profile.
 * @template T
 * @param {(visit: <V>(work: (context: BrowserContext) => Promise<V>) => Promise<V>, address: string) => Promise<T>} work
 */
async function withVisits(work) {
  const { chromium } = await import('playwright');
  const server = await servePage(join(ROOT, 'dist', 'demo'));
  const browser = await chromium.launch(webGpuLaunchOptions());
  try {
    return await work(async (open) => {
      const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
      return open(context).finally(() => context.close());
    }, server.address);
  } finally {
    await browser.close();
    server.close();
  }
}

/** @param {boolean} short */
const measureAll = (short) =>
  // Each visit has its own storage, so that the page does not offer the previous run.
  withVisits(async (visit, address) => {
    return {
      ...(await visit((context) => measureVisit(context, address, short ? 20_000 : 120_000))),
      ...(await visit((context) =>
        measureSmall(context, address, short ? { steps: 8, rounds: 2 } : { steps: 60, rounds: 6 }),
      )),
      short,
      loadAverage: Number(loadavg()[0].toFixed(1)),
    };
  });

function readOptions() {
  const flag = /** @type {const} */ ({ type: 'boolean', default: false });
  const lesson = /** @type {const} */ ({ type: 'string', multiple: true });
  return parseArgs({ options: { json: flag, short: flag, 'no-build': flag, lessons: flag, lesson } }).values;
}

try {
  const options = readOptions();
  const all = Object.keys(lessonPages()).filter((name) => /^\d-|^under$/.test(name));
  const named = options.lessons ? all : (options.lesson ?? []);
  const unknown = named.find((name) => !all.includes(name));
  if (unknown !== undefined)
    throw new SetupError(
      `--lesson is "${unknown}", and allowed are ${all.join(', ')}. Give one of them, or --lessons for all.`,
    );
  Object.assign(process.env, setup({ browser: true }));
  const vite = join(ROOT, 'node_modules', 'vite', 'bin', 'vite.js');
  if (!options['no-build'] && !runLoud(process.execPath, [vite, 'build', '--logLevel', 'warn']))
    throw new SetupError('The page did not build. Its messages are above.');
  if (named.length > 0) {
    const rows = await measureLessons(named, options.short);
    if (options.json) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
    else console.table(rows);
  } else {
    const measured = await measureAll(options.short);
    const lines = Object.entries(measured).map(([name, value]) => `${name.padEnd(20)}${value}`);
    process.stdout.write(`${options.json ? JSON.stringify(measured, null, 2) : lines.join('\n')}\n`);
  }
} catch (error) {
  exitOnSetupError(error);
}
