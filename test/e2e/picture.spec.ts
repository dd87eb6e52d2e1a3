/**
 * Takes the README's picture of the page in training, when asked to (it takes minutes):
 * PICTURE_STEPS=30 npx playwright test picture
 */

import { expect, test } from '@playwright/test';
import { openPage, points } from './demo.ts';

const STEPS = Number(process.env['PICTURE_STEPS'] ?? 0);

test('takes the picture of the page in training', async ({ page }) => {
  test.skip(STEPS === 0, 'PICTURE_STEPS is not set');
  test.setTimeout(1_800_000);
  await page.setViewportSize({ width: 1280, height: 1100 });
  await openPage(page);
  await page.getByRole('button', { name: 'Start' }).click();
  await expect.poll(() => points(page, 'reward'), { timeout: 1_700_000, intervals: [1000] }).toBeGreaterThan(STEPS - 1);
  await page.screenshot({ path: 'docs/images/demo.png', fullPage: true });
});
