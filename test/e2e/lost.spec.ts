/** Crashes the GPU process of a real engine: a run continues automatically, and an engine that was lost between runs is replaced. */

import { expect } from '@playwright/test';
import {
  expectState,
  isFull,
  noticesOf,
  onlyOnReal,
  testInFull,
  openPage,
  test,
  TINY,
  waitForStep,
  fromStep,
} from './demo.ts';
import { type Line, savedLines } from './savedLines.ts';

/** With --full, which compares weights, settings with which tries get different rewards, so that the weights change. */
const SETTINGS = isFull ? { ...TINY, n: 8, lr: 1e-3, 'data.maxResponseLength': 64, 'rollout.maxNumSeqs': 16 } : TINY;
const EVALUATED = { 'val-core/gsm8k-tool/acc/greedy': 0, 'val-core/gsm8k-tool/acc/mean@1': 0 };
const trained = (lines: Line[]) => lines.slice(0, 2).map((line) => ({ ...line, ...EVALUATED }));

test('after a crash of the GPU process the run continues automatically, with the results of an undisturbed run', async ({
  page: unbroken,
  own: { page, browser },
}) => {
  if (isFull) {
    // Only with --full. The everyday tests compare such runs with a scripted engine: autosave.spec.ts.
    await openPage(unbroken, SETTINGS);
    await unbroken.getByRole('button', { name: 'Start' }).click();
    await expectState(unbroken, 'done');
  }
  // So many steps that no machine finishes them before the crash.
  await openPage(page, { ...SETTINGS, steps: 2000, 'trainer.saveFreq': 1 });
  await page.getByRole('button', { name: 'Start' }).click();
  const notices = await noticesOf(page);
  await waitForStep(page, 1);
  await (await browser.newBrowserCDPSession()).send('Browser.crashGpuProcess');
  await expect.poll(notices).toMatch(/The GPU was lost at step \d+\. Resumed from step \d+\./);
  await waitForStep(page, 2); // a crash before step 1 was saved takes it back to 0
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done');
  const lines = await savedLines(page);
  expect(lines.slice(0, 2).map((line) => line['training/global_step'])).toEqual([1, 2]);
  if (isFull) expect(trained(lines)).toEqual(trained(await savedLines(unbroken)));
});

testInFull('a GPU that is lost while the page is idle is not used for training', async ({ own: { page, browser } }) => {
  onlyOnReal();
  const crash = async () => (await browser.newBrowserCDPSession()).send('Browser.crashGpuProcess');
  await openPage(page, TINY);
  await expect(page.locator('#rollouts .try').first()).toBeVisible();
  await crash();
  await expect.poll(() => page.workers().length).toBe(0);
  await expect(page.locator('.notice.error')).toHaveCount(0);
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  await crash();
  await expect(page.getByText('The GPU was lost. Press Start to open it again.')).toBeVisible();
  await expect.poll(() => page.workers().length).toBe(0);
});

// The everyday tests repeat runs over the scripted engine: autosave.spec.ts, timeTravel.spec.ts.
testInFull('a real engine repeats a reloaded run bit for bit', async ({ page, browser }) => {
  const settings = { ...SETTINGS, steps: 3, 'trainer.saveFreq': 1 };
  const whole = await browser.newPage();
  await openPage(whole, settings);
  await whole.getByRole('button', { name: 'Start' }).click();
  await expectState(whole, 'done');
  await openPage(page, { ...settings, steps: 2000 });
  await page.getByRole('button', { name: 'Start' }).click();
  await waitForStep(page, 2);
  await page.reload();
  await page.locator('.offer').getByRole('button', { name: 'Resume' }).click();
  await waitForStep(page, 3);
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done');
  expect(trained(await savedLines(page))).toEqual(trained(await savedLines(whole)));
  await page.getByRole('slider', { name: 'Step' }).fill('2');
  await fromStep(page, /^Replay/);
  await expect(page.locator('.replayed')).toHaveText(/(\d+) of \1 steps bit for bit as logged\.$/);
  await whole.close();
});

/** Calls that open a GPU in the engine's worker. */
const OPENING = { adapter: 'GPU.prototype.requestAdapter', device: 'GPUAdapter.prototype.requestDevice' };

for (const [what, call] of Object.entries(OPENING))
  testInFull(
    `a GPU that never gives out the ${what} in the worker: Stop ends the wait, and so does a limit`,
    async ({ page }) => {
      onlyOnReal();
      const hold = `{
      const { setTimeout } = globalThis;
      ${call} = () => ((globalThis.isHeld = true), new Promise(() => {}));
      globalThis.setTimeout = (then, ms) => (ms === 30_000 ? (globalThis.passLimit = then) : setTimeout(then, ms));
    }`;
      await page.route(/engine\.worker/, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, body: `${hold}\n${await response.text()}` });
      });
      await page.addInitScript(() => {
        window.requestIdleCallback = () => 0; // nothing is opened ahead
      });
      await openPage(page, TINY);
      await page.getByRole('button', { name: 'Start' }).click();
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
      await expectState(page, 'done');
      await expect(page.getByText('Stopped during a step.')).toBeVisible();
      await expect.poll(() => page.workers().length).toBe(0);
      await page.getByRole('button', { name: 'New run' }).click();
      await expect.poll(() => page.workers().length).toBe(1);
      const [worker] = page.workers();
      await expect.poll(() => worker.evaluate('globalThis.isHeld && typeof passLimit')).toBe('function');
      await worker.evaluate('passLimit()');
      await expectState(page, 'failed');
      await expect(page.locator('.notice.error')).toHaveText(
        `No GPU found. The GPU gave out no ${what} within 30 seconds. Close other programs that use it, then restart the browser and reload the page.`,
      );
    },
  );
