/**
 * Breaks the page in a real Chromium: a run is closed, reloaded, or loses its GPU process or its engine, at seeded moments. It must produce
 * the same metrics, bit for bit, as an undisturbed run. The browser's file operations also stop, or fail, one by one.
 */

import { resolve } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright';
import { CHROMIUM_ARGS, webGpuLaunchOptions } from '../src/cli/chromium.mjs';
import { mulberry32 } from '../src/model/random.ts';
import type { CampaignOptions, CampaignPart, CampaignRow } from './part.ts';
import type * as OpfsFaults from './page/opfsFaults.ts';

/** Number of steps of a small run. The tries of its groups differ, so that the weights change. */
const STEPS = 6;
const SETTINGS = {
  'data.trainBatchSize': 2,
  'actor.ppoMiniBatchSize': 2,
  'data.maxResponseLength': 64,
  'data.valMaxSamples': 4,
  'rollout.n': 8,
  'rollout.maxNumSeqs': 16,
  'actor.optim.lr': 1e-3,
  'trainer.totalTrainingSteps': STEPS,
  'trainer.testFreq': 0,
  'trainer.saveFreq': 1,
};
const SETS = Object.entries(SETTINGS).map(([key, value]) => `set=${key}=${value}`);
const QUERY = `/?autostart&resume=auto&${SETS.join('&')}`;

const MOMENTS = ['the tab is closed', 'the page is reloaded', 'the GPU process crashes', 'the engine dies'] as const;
type Moment = (typeof MOMENTS)[number];

/** Milliseconds without progress after which a run counts as hanging. */
const PATIENCE_MS = 90_000;
/** Milliseconds after which the complete form ends, on any machine. */
const LIMIT_MS = 540_000;

class Runs {
  readonly #browser: Browser;
  readonly #origin: string;

  constructor(browser: Browser, origin: string) {
    [this.#browser, this.#origin] = [browser, origin];
  }

  /**
   * Runs once. Breaks the run with the faults that `next()` returns, until `next()` returns undefined. Returns its metrics without timings.
   */
  async broken(next: () => { moment: Moment; afterMs: number } | undefined): Promise<string> {
    const context = await this.#browser.newContext();
    try {
      let page = await this.#open(context);
      for (let fault = next(); fault; fault = next()) {
        const done = await this.#isDone(page, fault.afterMs);
        if (done) break;
        page = await this.#break(context, page, fault.moment);
      }
      if (!(await this.#isDone(page, PATIENCE_MS * 2)))
        return `not done: ${await page.locator('#notices').innerText()}`;
      return await page.evaluate(readMetrics);
    } finally {
      await context.close();
    }
  }

  async #open(context: BrowserContext): Promise<Page> {
    const page = await context.newPage();
    await page.goto(this.#origin + QUERY);
    return page;
  }

  /** True if the run has ended. If it stopped after many losses in a row, this presses "Resume". */
  async #isDone(page: Page, withinMs: number): Promise<boolean> {
    const until = Date.now() + withinMs;
    for (;;) {
      const state = await page.locator('body').getAttribute('data-state');
      if (state === 'done') return true;
      if (state === 'failed')
        await page
          .locator('.offer')
          .getByRole('button', { name: 'Resume' })
          .click({ timeout: 5000 })
          .catch(() => {});
      if (Date.now() >= until) return false;
      await page.waitForTimeout(Math.min(100, until - Date.now()));
    }
  }

  async #break(context: BrowserContext, page: Page, moment: Moment): Promise<Page> {
    if (moment === 'the tab is closed') {
      await page.close();
      return this.#open(context);
    }
    if (moment === 'the page is reloaded') await page.reload();
    else if (moment === 'the GPU process crashes')
      await (await this.#browser.newBrowserCDPSession()).send('Browser.crashGpuProcess');
    else
      await page
        .workers()[0]
        ?.evaluate(() => void setTimeout(() => (globalThis as unknown as { nothing: () => void }).nothing()))
        .catch(() => {});
    return page;
  }
}

/** Runs in the page: returns the metrics of its run. */
async function readMetrics(): Promise<string> {
  const runs = await (await navigator.storage.getDirectory()).getDirectoryHandle('runs');
  const lines: string[] = [];
  for await (const folder of runs.values()) {
    const file = await (folder as FileSystemDirectoryHandle).getFileHandle('metrics.jsonl');
    for (const line of (await (await file.getFile()).text()).trim().split('\n')) {
      const metrics = Object.entries(JSON.parse(line) as Record<string, number>);
      lines.push(JSON.stringify(metrics.filter(([name]) => !/^(timing|perf)/.test(name))));
    }
  }
  return lines.join('\n');
}

async function moments(runs: Runs, { seed, full, say }: CampaignOptions): Promise<CampaignRow> {
  const started = Date.now();
  const [random, count] = [mulberry32(seed), full ? 50 : 2];
  const want = await runs.broken(() => undefined);
  const unbrokenMs = Date.now() - started;
  say(`unbroken: ${(unbrokenMs / 1000).toFixed(0)} s`);
  const failures: string[] = want.startsWith('not done') ? [`the unbroken run is ${want}`] : [];
  const tried: Moment[] = [];
  while (tried.length < count && failures.length === 0 && Date.now() - started < LIMIT_MS) {
    const before = tried.length;
    const got = await runs.broken(() => {
      if (tried.length >= count || Date.now() - started > LIMIT_MS) return undefined;
      const [moment, afterMs] = [MOMENTS[Math.floor(random() * MOMENTS.length)], random() * 0.6 * unbrokenMs];
      tried.push(moment);
      return { moment, afterMs };
    });
    say(`${tried.length} of ${count}`);
    if (got !== want)
      failures.push(`moments ${before}..${tried.length - 1}: ${got.startsWith('not done') ? got : 'other metrics'}`);
  }
  const note = MOMENTS.map((moment) => `${tried.filter((one) => one === moment).length} times ${moment}`).join(', ');
  return {
    what: 'a run in the page, broken: goes on, identical',
    tried: tried.length,
    wrong: failures.length,
    note,
    failures,
  };
}

async function operations(page: Page, { seed, full, say }: CampaignOptions): Promise<CampaignRow> {
  const module = `/@fs${resolve('campaign/page/opfsFaults.ts')}`;
  const count = await page.evaluate(
    async (from) => ((await import(from)) as typeof OpfsFaults).countOperations(),
    module,
  );
  const faults = ['before', 'torn', 'after', 'full'] as const;
  const failures: string[] = [];
  let tried = 0;
  for (let k = 0; k < count; k++)
    for (const fault of faults) {
      if (!full && (4 * k + faults.indexOf(fault) + seed) % 20 !== 0) continue;
      tried++;
      const wrong = await page
        .evaluate(async ([from, at, kind]) => ((await import(from)) as typeof OpfsFaults).brokenAt(at, kind), [
          module,
          k,
          fault,
        ] as const)
        .catch((error: unknown) => String(error));
      if (wrong !== undefined) failures.push(`operation ${k}, ${fault}: ${wrong}`);
    }
  say(`${tried} of ${4 * count} faults of the browser's files, ${failures.length} wrong`);
  return {
    what: "the browser's files stop at an operation (before, torn, after) or say no: gone on with, identical",
    ...{ tried, wrong: failures.length, note: `${count} operations in a run of 4 steps`, failures },
  };
}

export const page: CampaignPart = {
  name: 'page',
  async run(options) {
    const [{ createServer }, { chromium }] = [await import('vite'), await import('playwright')];
    const server = await createServer({
      configFile: resolve('vite.config.ts'),
      logLevel: 'error',
      server: { port: 0, watch: null }, // a watcher can outlive the server, and would keep the process alive
    });
    await server.listen();
    const origin = server.resolvedUrls!.local[0].replace(/\/$/, '').replace('localhost', '127.0.0.1');
    const browser = await chromium.launch({
      ...webGpuLaunchOptions(),
      // By default, Chromium stops a GPU process that crashes repeatedly.
      args: [...CHROMIUM_ARGS, '--disable-gpu-process-crash-limit'],
    });
    try {
      const blank = await browser.newPage();
      await blank.goto(`${origin}/style.css`);
      return [await operations(blank, options), await moments(new Runs(browser, origin), options)];
    } finally {
      await browser.close();
      await server.close();
    }
  },
};
