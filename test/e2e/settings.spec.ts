/** Tests the settings form: wrong fields show an error next to them, and Start waits for valid settings. */

import { expect } from '@playwright/test';
import { expectNoSideScroll, expectPoints, expectState, expectStep, openPage, test, testInFull, TINY } from './demo.ts';

test("an error is shown once, next to its field, with the field's label, and Start waits", async ({ page }) => {
  await openPage(page);
  const [steps, start] = [page.getByRole('textbox', { name: 'Steps' }), page.getByRole('button', { name: 'Start' })];
  const problem = page.getByRole('alert');
  await steps.fill('ten');
  await expect(problem).toHaveText('Steps is "ten"; allowed: integer >= 0.');
  await expect(steps).toHaveAttribute('aria-invalid', 'true');
  await expect(steps).toHaveAccessibleDescription('Steps is "ten"; allowed: integer >= 0.');
  await expect(start).toBeDisabled();
  await expect(page.getByText('Steps is "ten"')).toHaveCount(1);
  await steps.fill('');
  await expect(steps).toHaveAttribute('placeholder', '80');
  await expect(start).toBeEnabled();
  await expect(page.locator('#plan')).toContainText('80 steps');

  await page.getByLabel('Learning rate').fill('-1');
  await expect(problem).toContainText('Learning rate is -1; allowed:');
  await page.getByLabel('Learning rate').fill('1e-4');

  await page.getByLabel('Tries per problem').fill('1000');
  await expect(problem).toContainText(
    '16 problems \u00d7 1,000 tries are 16,000 per step, but the page shows up to 4,096',
  );
  await page.getByLabel('Tries per problem').fill('4');
  await steps.fill('1000000');
  await expect(problem).toContainText('the page allows 1 to 10,000');
  await expect(start).toBeDisabled();

  await page.setViewportSize({ width: 360, height: 780 });
  await page.getByText('More settings').click();
  await expect(page.getByLabel('Seed')).toBeVisible();
  await expectNoSideScroll(page, 'opened, on a phone');
});

test('a wrong choice in the address is named, and an unknown recipe opens the default one', async ({ page }) => {
  await page.goto('/?algorithm=foo');
  await expect(page.getByRole('alert')).toContainText('Algorithm is "foo"');
  await expect(page.getByLabel('Algorithm')).toHaveValue('foo');
  await page.goto('/?config=nonexistent');
  await expect(page.locator('.notice.error')).toContainText(
    'Unknown recipe "nonexistent". Recipes of the page: gsm8k-tool, reverse-text',
  );
  await expect(page.locator('.notice.error')).not.toContainText('.yaml');
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
  await expect(page.locator('#adapter')).not.toHaveText('No GPU');
});

testInFull(
  'Enter in a field starts a run and keeps the focus, and a later typo does not change the finished run',
  async ({ page }) => {
    await openPage(page, { ...TINY, steps: 2 });
    const steps = page.getByRole('textbox', { name: 'Steps' });
    await steps.press('Enter');
    await expect(page.locator('body')).toHaveAttribute('data-state', /loading|running|done/);
    await expect(steps).toBeFocused();
    await expectState(page, 'done');
    await expect(steps).toBeFocused();
    await steps.fill('two');
    await steps.press('Enter');
    await expectState(page, 'done');
    await expectStep(page, 2);
    await expectPoints(page, 'reward', 2);
  },
);
