/** Tests that a run survives its tab, its GPU and its worker, with the same results as without an interruption. */

import { expect, type Page } from '@playwright/test';
import { DeviceLostError } from '../../src/errors.ts';
import {
  address,
  expectKept,
  expectPoints,
  expectState,
  noticesOf,
  openPage,
  stepInFull,
  test,
  testInFull,
  TINY,
} from './demo.ts';
import { type Line, savedLines, storedIn } from './savedLines.ts';

/** Settings with which tries get different rewards, so that the weights change. A checkpoint is saved after each step. */
const SAVED = {
  ...TINY,
  ...{ steps: 3, n: 8, lr: 1e-3, 'data.maxResponseLength': 64, 'rollout.maxNumSeqs': 16, 'trainer.saveFreq': 1 },
};

const startRun = async (page: Page) => {
  await openPage(page, SAVED);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
};

let unbroken: Line[];
const endsAsUnbroken = async (page: Page) => {
  await expectState(page, 'done');
  expect(await savedLines(page)).toEqual(unbroken);
};
test.beforeAll(async ({ browser }) => {
  const page = await browser.newPage();
  await startRun(page);
  await expectState(page, 'done');
  unbroken = await savedLines(page);
  await page.close();
  expect(unbroken.map((line) => line['training/global_step'])).toEqual([1, 2, 3]);
  expect(unbroken.filter((line) => line['actor/grad_norm'] > 0).length, 'steps that moved the weights').toBeGreaterThan(
    1,
  );
});

test('a reload shows the run unchanged, and it continues to the same end; a discarded run is deleted', async ({
  page,
  engine,
}) => {
  engine.upTo(2);
  await startRun(page);
  await expectKept(page, 2);
  await page.reload();
  await expect(page.locator('.offer')).toHaveText(/^Run (.*, )?\d\d:\d\d stopped after step 2 of 3\.ResumeDiscard$/);
  await expectPoints(page, 'reward', 2);
  await expect(page.locator('#rollouts .question').first()).toContainText('?');
  const notices = await noticesOf(page);
  engine.open();
  await page.locator('.offer').getByRole('button', { name: 'Resume' }).click();
  await endsAsUnbroken(page);
  expect(await notices()).toMatch(/Resumed from step 2\./);
  await expectPoints(page, 'reward', 3);

  await page.reload();
  await page.locator('.offer').getByRole('button', { name: 'Discard' }).click();
  await expect(page.locator('.offer')).toHaveCount(0);
  await expectPoints(page, 'reward', 0);
  await expect.poll(() => storedIn(page, 'runs')).toEqual([]);
});

// Every day lost.spec.ts sees a run continue, and unit trainCommand that it has the results of an undisturbed run.
testInFull('a run continues automatically when the GPU is lost during a step', async ({ page, engine }) => {
  engine.fail(3, new DeviceLostError('unknown', 'the test took it'));
  await openPage(page, SAVED);
  const notices = await noticesOf(page);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await endsAsUnbroken(page);
  expect(await notices()).toMatch(/The GPU was lost at step 3\. Resumed from step 2\./);
});

testInFull(
  'without storage, the page says so once, continues after a lost GPU, and asks before it is closed',
  async ({ page, engine }) => {
    await page.addInitScript(() => {
      StorageManager.prototype.getDirectory = () => Promise.reject(new DOMException('no', 'SecurityError'));
      IDBFactory.prototype.open = () => {
        throw new DOMException('no', 'SecurityError');
      };
    });
    engine.upTo(1);
    engine.fail(2, new DeviceLostError('unknown', 'the test took it'));
    await startRun(page);
    await expect(page.getByText(/Resumed from step 1/)).toBeVisible();
    await expect(page.getByText('Not saved. This window cannot store files')).toHaveCount(1);
    const asked = page.waitForEvent('dialog');
    await page.close({ runBeforeUnload: true });
    const dialog = await asked;
    expect(dialog.type()).toBe('beforeunload');
    await dialog.dismiss();
    engine.open();
    await expectState(page, 'done');
  },
);

test('a full disk is reported with bytes, the run continues, and is saved again when there is space', async ({
  page,
  context,
  engine,
}) => {
  engine.upTo(1);
  await openPage(page, SAVED);
  const devtools = await context.newCDPSession(page);
  const origin = new URL(page.url()).origin;
  await devtools.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: 1_000_000 });
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  // Chromium reports missing space before the page writes; other browsers only when a write fails.
  const said =
    /^Not saved\. (The browser has no space left for \S+ \(\d+ bytes\)|The checkpoint needs .* \(\d+ bytes\))/;
  await expect(page.getByText(said)).toBeVisible();
  await devtools.send('Storage.overrideQuotaForOrigin', { origin });
  engine.upTo(2);
  await expect(page.getByText('Not saved.')).toBeHidden();
  engine.open();
  await endsAsUnbroken(page);
});

test('two tabs do not train one run', async ({ page, context, engine }) => {
  engine.upTo(0);
  const settings = { ...TINY, 'trainer.saveFreq': 1 };
  await openPage(page, settings);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await engine.reached(1);
  await page.getByRole('button', { name: 'Pause' }).click();
  engine.open();
  await expectState(page, 'paused');
  const other = await context.newPage();
  await other.goto(address(settings));
  await expect(other.locator('.offer')).toHaveText(/is open in another tab\.$/);
  await expect(other.getByText('Another tab is training. A run started here would share its GPU')).toBeVisible();
  await page.close();
  await expect(other.locator('.offer').getByRole('button', { name: 'Resume' })).toBeEnabled();
  await stepInFull('the other tab continues the run', async () => {
    await other.locator('.offer').getByRole('button', { name: 'Resume' }).click();
    await expect(other.getByText('Another tab is training')).toHaveCount(0);
    await expectState(other, 'done');
    await expectPoints(other, 'reward', 2);
  });
});
