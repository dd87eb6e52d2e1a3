/** A run outlives its tab, its GPU and its worker, and comes out as if nothing had happened. */

import { expect, type Page } from '@playwright/test';
import {
  address,
  atStep,
  expectState,
  noticesOf,
  openPage,
  points,
  reloadAtStep,
  stepsDone,
  testWithOwnBrowser as test,
  TINY,
} from './demo.ts';

/** Tries that differ, so that the weights move; saved after each step, so that little is done again. */
const SAVED = {
  ...TINY,
  ...{ steps: 3, n: 8, lr: 1e-3, 'data.maxResponseLength': 64, 'rollout.maxNumSeqs': 16, 'trainer.saveFreq': 1 },
};

/** No machine ends it while a test looks. */
const LONG = { ...SAVED, steps: TINY.steps };

interface Line {
  'training/global_step': number;
  [metric: string]: number;
}

const startRun = async (page: Page, settings: Parameters<typeof address>[0] = SAVED) => {
  await openPage(page, settings);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
};
const reaches = (page: Page, step: number) =>
  expect.poll(() => stepsDone(page), { timeout: 120_000, intervals: [50] }).toBeGreaterThanOrEqual(step);

/** metrics.jsonl of the newest run in the browser's files, without what a clock measured. */
async function savedLines(page: Page): Promise<Line[]> {
  const text = await page.evaluate(async () => {
    const runs = await (await navigator.storage.getDirectory()).getDirectoryHandle('runs');
    const names: string[] = [];
    for await (const name of runs.keys()) names.push(name);
    const folder = await runs.getDirectoryHandle(names.sort().at(-1)!);
    return (await (await folder.getFileHandle('metrics.jsonl')).getFile()).text();
  });
  return text
    .trim()
    .split('\n')
    .map((line) => {
      const all = Object.entries(JSON.parse(line) as Line);
      return Object.fromEntries(all.filter(([name]) => !/^(timing|perf)/.test(name))) as Line;
    });
}

const EVALUATED = { 'val-core/gsm8k-tool/acc/greedy': 0, 'val-core/gsm8k-tool/acc/mean@1': 0 };
let unbroken: Line[];
/** Of a long run: its first steps are those of a short one, but for the evaluation after the last. */
const endsAsUnbroken = async (page: Page) => {
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done', 60_000);
  const trained = (lines: Line[]) => lines.map((line) => ({ ...line, ...EVALUATED }));
  expect(trained(await savedLines(page)).slice(0, unbroken.length)).toEqual(trained(unbroken));
};
test.beforeAll(async ({ browser }) => {
  const page = await browser.newPage();
  await startRun(page);
  await expectState(page, 'done', 240_000);
  unbroken = await savedLines(page);
  await page.close();
  expect(unbroken.map((line) => line['training/global_step'])).toEqual([1, 2, 3]);
  expect(unbroken.filter((line) => line['actor/grad_norm'] > 0).length, 'steps that moved the weights').toBeGreaterThan(
    1,
  );
});

test('reloaded in mid-run, it shows the run as it was and goes on to the same end; discarded, it is gone', async ({
  page,
}) => {
  await startRun(page);
  await reloadAtStep(page, 2);
  await expect(page.locator('.offer')).toHaveText(/^The run of \d\d:\d\d stopped after step [12] of 3\.Go onDiscard$/);
  expect(await points(page, 'reward')).toBeGreaterThanOrEqual(1);
  await expect(page.locator('#rollouts .question').first()).toContainText('?');
  if (process.env['SHOTS']) await shots(page, 'offer');
  const notices = await noticesOf(page);
  await page.locator('.offer').getByRole('button', { name: 'Go on' }).click();
  await expect.poll(notices, { timeout: 60_000 }).toMatch(/Went on from step [12]\./);
  await expectState(page, 'done', 240_000);
  expect(await savedLines(page)).toEqual(unbroken);
  expect(await points(page, 'reward')).toBe(3);

  await page.reload();
  await page.locator('.offer').getByRole('button', { name: 'Discard' }).click();
  await expect(page.locator('.offer')).toHaveCount(0);
  expect(await points(page, 'reward')).toBe(0);
  await page.reload();
  await expect(page.getByRole('button', { name: 'Start', exact: true })).toBeEnabled();
  await page.waitForTimeout(1000);
  await expect(page.locator('.offer')).toHaveCount(0);
});

test('a crash of the GPU process: it goes on by itself', async ({ own: { page, browser } }) => {
  await startRun(page);
  const notices = await noticesOf(page);
  const devtools = await browser.newBrowserCDPSession();
  await atStep(page, 2, () => devtools.send('Browser.crashGpuProcess'));
  await expect.poll(notices, { timeout: 60_000 }).toMatch(/The GPU was lost at step \d\. Went on from step \d\./);
  if (process.env['SHOTS']) await shots(page, 'lost');
  await expectState(page, 'done', 240_000);
  expect(await savedLines(page)).toEqual(unbroken);
});

test('where the browser keeps no files, it says so once, goes on after a crash, and asks before it is left', async ({
  own: { page, browser },
}) => {
  await page.addInitScript(() => {
    StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));
    IDBFactory.prototype.open = () => {
      throw new DOMException('no', 'SecurityError');
    };
  });
  await startRun(page, LONG);
  await reaches(page, 2);
  await expect(page.getByText('Not saved. This window keeps no files')).toHaveCount(1);
  if (process.env['SHOTS']) await shots(page, 'no-files');
  await (await browser.newBrowserCDPSession()).send('Browser.crashGpuProcess');
  await expect(page.getByText(/Went on from step \d/)).toBeVisible({ timeout: 60_000 });
  const asked = page.waitForEvent('dialog', { timeout: 30_000 });
  await page.close({ runBeforeUnload: true });
  const dialog = await asked;
  expect(dialog.type()).toBe('beforeunload');
  await dialog.dismiss();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done', 60_000);
});

test('a full disk is said with bytes, the run goes on, and with room it is saved again', async ({ page, context }) => {
  await openPage(page, LONG);
  const devtools = await context.newCDPSession(page);
  const origin = new URL(page.url()).origin;
  await devtools.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: 1_000_000 });
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  // Chromium tells no room beforehand; other browsers do.
  const said = /^Not saved\. (The browser has no room left for \S+ \(\d+ bytes\)|A checkpoint takes .* \(\d+ bytes\))/;
  await expect(page.getByText(said)).toBeVisible({ timeout: 120_000 });
  if (process.env['SHOTS']) await shots(page, 'quota');
  await devtools.send('Storage.overrideQuotaForOrigin', { origin });
  await expect(page.getByText('Not saved.')).toBeHidden({ timeout: 60_000 });
  await reaches(page, 3);
  await endsAsUnbroken(page);
});

test('two tabs do not train one run', async ({ page, context }) => {
  await startRun(page, LONG);
  await reaches(page, 1);
  await page.getByRole('button', { name: 'Pause' }).click();
  await expectState(page, 'paused', 60_000);
  const other = await context.newPage();
  await other.goto(address(LONG));
  await expect(other.locator('.offer')).toHaveText(/is open in another tab\.$/);
  await expect(other.getByText('Another tab is training: a run started here would share the GPU')).toBeVisible();
  if (process.env['SHOTS']) await shots(other, 'two-tabs');
  await page.close();
  await other.locator('.offer').getByRole('button', { name: 'Go on' }).click();
  await expect(other.getByText('Another tab is training')).toHaveCount(0);
  await reaches(other, 3);
  await endsAsUnbroken(other);
});

/** Pictures of a state: light, dark, and as wide as a phone. */
async function shots(page: Page, name: string): Promise<void> {
  const folder = process.env['SHOTS']!;
  await page.screenshot({ path: `${folder}/${name}.png` });
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.screenshot({ path: `${folder}/${name}-dark.png` });
  await page.emulateMedia({ colorScheme: 'light' });
  const size = page.viewportSize()!;
  await page.setViewportSize({ width: 390, height: 844 });
  await page.screenshot({ path: `${folder}/${name}-phone.png` });
  await page.setViewportSize(size);
}
