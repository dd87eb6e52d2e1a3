/** Tests the recorded run: without WebGPU the page shows it, and says that it is a recording. */

import { expect } from '@playwright/test';
import { address, expectNoSideScroll, expectPoints, expectState, openPage, points, testInFull, test } from './demo.ts';

test('without WebGPU a recorded run plays, is paused and scrubbed', async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.clock.install();
  await page.goto('/');
  await expectState(page, 'no-gpu');
  await page.clock.pauseAt(Date.now() + 60_000); // not earlier: a stopped timer would hold back the views that load after Start
  await expect(page.locator('.notice.error')).toContainText('This browser cannot train. Training needs WebGPU');
  const recorded = page.getByRole('region', { name: 'Recorded run' });
  await expect(recorded).toContainText('Recorded run. Trained on');
  await expect(async () => {
    await page.clock.runFor(500); // a step of the recording
    expect(await points(page, 'reward')).toBeGreaterThan(2);
  }).toPass();
  await expect(page.locator('.try').first()).toBeVisible();
  await recorded.getByRole('button', { name: 'Pause' }).click();
  await page.clock.runFor(500); // what the last step has changed is shown
  const paused = await points(page, 'reward');
  await page.clock.runFor(10_000);
  await expectPoints(page, 'reward', paused);
  const slider = recorded.getByRole('slider', { name: 'Step of the recorded run' });
  for (const [seconds, line] of [
    [5, 11],
    [15, 31],
    [30, 61],
    [60, 81],
  ]) {
    await slider.fill(`${line}`);
    await expect(page.locator('.picker .label')).toContainText(`Step ${line - 1},`);
    await expect(page.locator('.teaches'), `after ${seconds} s`).toHaveText(/more likely/);
  }
  await slider.press('End');
  await expectPoints(page, 'reward', 80);
  await expectPoints(page, 'pass', 5);
  await expect(page.locator('#status-now')).toHaveText('Recorded run');
  await expect(page.locator('#status-left')).toHaveText('\u2013');
  await expect(page.getByRole('button', { name: 'Start' })).toBeDisabled();
  await page.setViewportSize({ width: 360, height: 780 });
  await expectNoSideScroll(page);
});

testInFull('with WebGPU a button plays the recorded run, and closes it', async ({ page }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await openPage(page);
  await page.getByRole('button', { name: 'Watch a recorded run' }).click();
  const recorded = page.getByRole('region', { name: 'Recorded run' });
  await expect(recorded.getByRole('button', { name: 'Play again' })).toBeVisible();
  await expectPoints(page, 'reward', 80);
  await recorded.getByRole('button', { name: 'Close' }).click();
  await expectPoints(page, 'reward', 0);
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
});

testInFull('the recorded runs of a known model play from the card of own models', async ({ page }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await page.goto(address({ config: 'your-model' }));
  for (const [name, steps, answer] of [
    ['past tenses', 16, /^What is the past tense of/],
    ['to call a calculator', 12, /\?$/],
  ] as const) {
    await page.getByRole('button', { name, exact: true }).click();
    const recorded = page.getByRole('region', { name: 'Recorded run' });
    await expect(recorded).toContainText('One problem per step was kept.');
    await expectPoints(page, 'reward', steps);
    await expectPoints(page, 'pass', 2);
    await expect(page.locator('#rollouts .question').last()).toHaveText(answer);
    await expect(page.locator('#headline')).toContainText('Share solved');
    await recorded.getByRole('button', { name: 'Close' }).click();
    await expectState(page, 'idle');
  }
});
