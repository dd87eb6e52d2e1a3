/** The page around a run: what it says without a GPU, on bad settings, on a lost GPU; pause, resume, stop. */

import { expect, test } from '@playwright/test';
import { address, expectState, openPage, points, stepsDone, TINY } from './demo.ts';

test('shows the adapter, and says so loudly when it is a software one', async ({ page }) => {
  await openPage(page);
  const adapter = page.locator('#adapter');
  await expect(adapter).toHaveAttribute('data-software', /true|false/);
  await expect(adapter).not.toBeEmpty();
  const isSoftware = (await adapter.getAttribute('data-software')) === 'true';
  await expect(page.getByText('Software adapter.')).toHaveCount(isSoftware ? 1 : 0);
});

test('without WebGPU it says what is missing and what to do', async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.goto('/');
  await expectState(page, 'no-gpu', 30_000);
  await expect(page.getByText('This browser has no WebGPU')).toBeVisible();
  await expect(page.getByRole('button', { name: 'Start' })).toBeDisabled();
});

test('with WebGPU but no adapter it says where to look', async ({ page }) => {
  await page.addInitScript(() => {
    GPU.prototype.requestAdapter = () => Promise.resolve(null);
  });
  await page.goto('/');
  await expectState(page, 'no-gpu', 30_000);
  await expect(page.getByText('chrome://gpu')).toBeVisible();
});

test('a bad setting is refused in one sentence and can be corrected', async ({ page }) => {
  await openPage(page, { ...TINY, lr: -1 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expect(page.locator('.notice.error')).toContainText('"actor.optim.lr" is -1; allowed:');
  await expectState(page, 'failed', 1000);
  await page.getByLabel('Learning rate').fill('1e-4');
  await page.getByRole('button', { name: 'Start again' }).click();
  await expectState(page, 'running', 60_000);
});

test('an unknown key in the address names the nearest known one', async ({ page }) => {
  await page.goto(address({ 'rollout.temprature': 1 }));
  await page.getByRole('button', { name: 'Start' }).click();
  await expect(page.locator('.notice.error')).toContainText('did you mean "rollout.temperature"?');
});

test('another algorithm brings its own clip range, not that of the file', async ({ page }) => {
  await openPage(page);
  const summary = page.locator('.summary');
  await expect(summary).toContainText('clip 0.2 / 0.28');
  await page.getByLabel('Algorithm').selectOption('gspo');
  await expect(summary).toContainText('loss gspo, seq-mean-token-mean');
  await expect(summary).toContainText('clip 0.0003 / 0.0004');
  await page.getByLabel('Algorithm').selectOption('grpo');
  await page.getByLabel('Loss').selectOption('cispo');
  await expect(summary).toContainText('loss cispo');
  await page.getByLabel('Steps').fill('ten');
  await expect(summary).toContainText('"trainer.totalTrainingSteps" is "ten"');
});

test('pauses between steps, resumes, stops', async ({ page }) => {
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'running', 60_000);
  await expect(page.locator('#loss')).toHaveText('Shown after the first step.');
  await expect.poll(() => points(page, 'reward'), { timeout: 90_000 }).toBeGreaterThan(0);
  await expect(page.locator('#loss')).toContainText('The policy loss is');

  await page.getByRole('button', { name: 'Pause' }).click();
  await expectState(page, 'paused', 60_000);
  const paused = await stepsDone(page);
  await page.waitForTimeout(3000);
  expect(await stepsDone(page), 'no step while paused').toBe(paused);

  await page.getByRole('button', { name: 'Resume' }).click();
  await expect.poll(() => stepsDone(page), { timeout: 60_000 }).toBeGreaterThan(paused);

  await page.getByRole('button', { name: 'Stop' }).click();
  await expectState(page, 'done', 60_000);
  await expect(page.getByText(/Stopped after step \d+\./)).toBeVisible();
  await expect(page.getByRole('button', { name: 'Start again' })).toBeEnabled();
});

test('stops at once when asked twice', async ({ page }) => {
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await expectState(page, 'done', 5000);
  await expect(page.getByText('Stopped in the middle of a step.')).toBeVisible();
});

test('a lost GPU is reported, and the run can be started again', async ({ page, browser }) => {
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await expect.poll(() => points(page, 'reward'), { timeout: 90_000 }).toBeGreaterThan(0);
  const devtools = await browser.newBrowserCDPSession();
  await devtools.send('Browser.crashGpuProcess');
  await expectState(page, 'failed', 60_000);
  await expect(page.getByText('The GPU was lost.')).toBeVisible();
  await page.getByRole('button', { name: 'Start again' }).click();
  await expect.poll(() => points(page, 'reward'), { timeout: 90_000 }).toBeGreaterThan(0);
});

test('an engine that dies is reported', async ({ page }) => {
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await expect.poll(() => points(page, 'reward'), { timeout: 90_000 }).toBeGreaterThan(0);
  const [worker] = page.workers();
  await worker.evaluate(() => void setTimeout(() => (globalThis as unknown as { nothing: () => void }).nothing()));
  await expectState(page, 'failed', 30_000);
  await expect(page.getByText('The engine stopped.')).toBeVisible();
  await expect.poll(() => page.workers().length, { timeout: 10_000 }).toBe(0);
});
