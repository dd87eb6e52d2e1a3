/** The recorded run: where there is no WebGPU it is what the page shows, and says that it is one. */

import { expect, test } from '@playwright/test';
import { expectState, openPage, points } from './demo.ts';

test('without WebGPU a recorded run plays, is paused and scrubbed', async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.goto('/');
  await expectState(page, 'no-gpu', 30_000);
  await expect(page.locator('.notice.error')).toContainText('This browser cannot train. This browser has no WebGPU');
  const recorded = page.getByRole('region', { name: 'Recorded run' });
  await expect(recorded).toContainText('Recorded run. Curves and tries below were computed on');
  await expect.poll(() => points(page, 'reward')).toBeGreaterThan(2);
  await expect(page.locator('.try').first()).toBeVisible();
  await recorded.getByRole('button', { name: 'Pause' }).click();
  const paused = await points(page, 'reward');
  await page.waitForTimeout(1500);
  expect(await points(page, 'reward')).toBe(paused);
  await recorded.getByRole('slider', { name: 'Step of the recorded run' }).press('End');
  await expect.poll(() => points(page, 'reward')).toBe(80);
  await expect.poll(() => points(page, 'pass')).toBe(5);
  await expect(page.locator('#status-now')).toHaveText('Recorded run');
  await expect(page.locator('#status-left')).toHaveText('\u2013');
  await expect(page.getByRole('button', { name: 'Start' })).toBeDisabled();
  for (const scheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme: scheme });
    if (process.env['SHOTS']) await page.screenshot({ path: `${process.env['SHOTS']}/recorded-${scheme}.png` });
  }
  await page.setViewportSize({ width: 360, height: 780 });
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
  if (process.env['SHOTS'])
    await page.screenshot({ path: `${process.env['SHOTS']}/recorded-phone.png`, fullPage: true });
});

test('with WebGPU it is watched by a button, and put away', async ({ page }) => {
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await openPage(page);
  await page.getByRole('button', { name: 'Watch a recorded run' }).click();
  const recorded = page.getByRole('region', { name: 'Recorded run' });
  await expect(recorded.getByRole('button', { name: 'Play again' })).toBeVisible();
  await expect.poll(() => points(page, 'reward')).toBe(80);
  await recorded.getByRole('button', { name: 'Put it away' }).click();
  await expect.poll(() => points(page, 'reward')).toBe(0);
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
});
