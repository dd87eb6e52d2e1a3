/** The page moves from its first seconds, and what it says of the end is true. */

import { readFile } from 'node:fs/promises';
import { expect, type Page } from '@playwright/test';
import { expectState, openPage, points, stepsDone, testWithOwnBrowser as test, TINY } from './demo.ts';

const SMALL = { ...TINY, steps: 2, n: 4, lr: 1e-3, 'data.maxResponseLength': 64, 'data.valMaxSamples': 40 };

const tries = (page: Page) => page.locator('#rollouts .try');
const start = (page: Page) => page.getByRole('button', { name: 'Start', exact: true }).click();

/** metrics.jsonl as it is saved by the button, without what a clock measured. */
async function lines(page: Page): Promise<Record<string, number>[]> {
  const download = page.waitForEvent('download', { timeout: 30_000 });
  await page.getByRole('button', { name: 'Save metrics' }).click();
  const text = await readFile(await (await download).path(), 'utf8');
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const all = Object.entries(JSON.parse(line) as Record<string, number>);
      return Object.fromEntries(all.filter(([name]) => !/^(timing|perf)/.test(name)));
    });
}

test('the untrained model tries before Start, and a run comes out as if it had not', async ({ page }) => {
  let fetched = 0;
  page.on('request', (request) => {
    if (/model[\w-]*\.safetensors$/.test(request.url())) fetched++; // vite's own modules end otherwise
  });
  const opened = Date.now();
  await openPage(page, { ...SMALL, 'trainer.valBeforeTrain': true });
  await expect(tries(page).first()).toBeVisible({ timeout: 60_000 });
  const alive = Date.now() - opened;
  expect(await points(page, 'reward')).toBe(0);
  await expect(page.locator('body')).toHaveAttribute('data-state', 'idle');
  expect(page.workers()).toHaveLength(1);

  await start(page);
  await expect(page.locator('#status-now')).toContainText(/Evaluating the untrained model, \d+ of 40/, {
    timeout: 60_000,
  });
  expect(await page.title()).toMatch(/^\d+%/);
  await expectState(page, 'done', 90_000);
  await expect(page.locator('#status-left')).toHaveText('\u2013');
  expect(await page.title()).toBe('webgrpo');
  expect(fetched, 'requests of model.safetensors').toBe(1);
  const warm = await lines(page);

  // The evaluation first, in one piece, as stopWhen needs it; and nothing opened ahead, since the page is never idle.
  await page.addInitScript(() => {
    window.requestIdleCallback = () => 0;
  });
  const neverReached = {
    'trainer.testFreq': 100,
    'trainer.stopWhen.metric': 'val-core/gsm8k-tool/acc/mean@1',
    'trainer.stopWhen.atLeast': 2,
  };
  await openPage(page, { ...SMALL, 'trainer.valBeforeTrain': true, ...neverReached });
  await start(page);
  await expectState(page, 'done', 90_000);
  expect(warm).toEqual(await lines(page));
  test.info().annotations.push({ type: 'measured', description: `first try ${alive} ms after the page was asked for` });
});

test('after Stop the weights at the end are evaluated, with a count; another Stop skips that', async ({ page }) => {
  await openPage(page, { ...SMALL, steps: TINY.steps, 'data.valMaxSamples': 64 });
  await start(page);
  await expect.poll(() => stepsDone(page), { timeout: 60_000 }).toBeGreaterThan(0);
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expect(page.locator('#status-now')).toHaveText(/^Evaluating, \d+ of 64, then stop$/);
  await expectState(page, 'done', 60_000);
  const last = (await lines(page)).at(-1)!;
  expect(last['training/global_step']).toBe(await stepsDone(page));
  expect(last['val-core/gsm8k-tool/acc/mean@1']).toBeGreaterThanOrEqual(0);
  expect(await points(page, 'pass')).toBe(1);
  await expect(page.locator('#status-left')).toHaveText('\u2013');

  await page.getByRole('button', { name: 'Start again' }).click();
  await expectState(page, 'running', 60_000);
  await expect.poll(() => points(page, 'reward'), { timeout: 60_000 }).toBeGreaterThan(0);
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await page.getByRole('button', { name: 'Skip evaluation' }).click();
  await expectState(page, 'done', 60_000);
  await expect(page.getByText(/Stopped after step \d+\./)).toBeVisible();
  expect(await points(page, 'pass')).toBe(0);
});

test('a GPU that is lost while the page idles is none to train on', async ({ own: { page, browser } }) => {
  test.skip(process.env['FULL_TESTS'] !== '1', 'with --full: another run');
  await openPage(page, SMALL);
  await expect(tries(page).first()).toBeVisible({ timeout: 60_000 });
  await (await browser.newBrowserCDPSession()).send('Browser.crashGpuProcess');
  await expect.poll(() => page.workers().length).toBe(0);
  await expect(page.locator('.notice.error')).toHaveCount(0);
  await start(page);
  await expectState(page, 'done', 60_000);
  await (await browser.newBrowserCDPSession()).send('Browser.crashGpuProcess');
  await expect(page.getByText('The GPU was lost. Start opens another.')).toBeVisible();
  expect(page.workers()).toEqual([]);
});
