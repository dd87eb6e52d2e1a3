/** Tests lesson 3 in a browser: its loop in a worker, figures, predictions and exercises by keyboard alone. The engine is scripted. */

import { expect, type Page } from '@playwright/test';
import { readFileSync } from 'node:fs';
import { runnerImport } from 'vite';
import type * as lesson from '../../demo/lessons/3-run/exercises.ts';
import { expectNoViolations } from './axe.ts';
import { isFull, stepInFull, testInFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt, solveSome, write } from './lesson.ts';

const openLesson = (page: Page, query = '') =>
  openLessonAt(page, `/lessons/3-run/index.html${query}`, '[data-figure="3.1"] svg');

const loop = readFileSync('demo/lessons/3-run/run.js', 'utf8');
const button = (page: Page, number: string, name: RegExp | string) =>
  figure(page, number).getByRole('button', { name });

/** Presses "Look without a guess" in both predictions. The button disappears when it is pressed, so the second is pressed first. */
async function lookWithoutGuesses(page: Page): Promise<void> {
  const look = page.getByRole('button', { name: 'Look without a guess' });
  await look.nth(1).click();
  await look.click();
}

test('lesson 3 is done by keyboard alone, and its loop trains three steps in the tab', async ({ page }) => {
  const wrong = await openLesson(page);
  const first = figure(page, '3.1');
  await expect(first.locator('.says')).toContainText('Predict first');
  await expect(first.locator('polyline')).toHaveCount(0);
  await page.getByLabel('Step 60: ').press('End');
  await page.getByLabel('Step 60: ').press('Enter');
  await expect(page.locator('.predict [role=status]').first()).toContainText(
    'and 1.00 at the end. The recorded run had',
  );
  await expect(first.locator('polyline.guess')).toHaveCount(1);
  await expect(first.locator('polyline.curve-a')).toHaveCount(1);

  await write(page, first, loop.replace('steps = 60', 'steps = 3'));
  await button(page, '3.1', /^Run it here/).press('Enter');
  await expect(first.getByText(/^Trained in .* 3 updates\.$/)).toBeVisible();
  await expect(first.locator('.says')).toContainText('In this tab: reward');
  await expect(first.locator('table')).toContainText('Eight tries of step 3');
  await expect(figure(page, '3.4').locator('.says')).toContainText('Your run, mean of a step');

  await page.getByLabel('a tenth learns more slowly, ten times breaks the model').press('Space');
  await page.getByLabel('a tenth learns more slowly, ten times breaks the model').press('Enter');
  await expect(figure(page, '3.2').locator('polyline')).toHaveCount(3);
  await figure(page, '3.2')
    .getByLabel(/^Your learning rate/)
    .press('End');
  await expect(page).toHaveURL(/rate=-1/);
  await stepInFull('the own learning rate trains, too', async () => {
    await button(page, '3.2', /^Run yours/).press('Enter');
    const rate = figure(page, '3.2');
    await expect(rate.getByText(/^Trained in .* 60 updates\.$/)).toBeVisible();
    await expect(rate.locator('polyline')).toHaveCount(4);
  });

  await figure(page, '3.3')
    .getByLabel(/^Step: /)
    .press('End');
  await button(page, '3.3', /^Entropy/).press('Enter');
  await expect(figure(page, '3.3').locator('.says')).toContainText('at step 80. How uncertain the model is');
  await expect(figure(page, '3.3').locator('.step-tries li')).toHaveCount(4);

  // Node cannot import the exercises itself, because they import a file as text (`?raw`). So Vite does.
  const { module } = await runnerImport<typeof lesson>('./demo/lessons/3-run/exercises.ts', { configFile: false });
  await solveSome(page, module.EXERCISES);
  if (isFull) await expectNoViolations(page, 'lesson 3');
  expect(wrong).toEqual([]);
});

test('Stop ends a loop at once, also one that never waits, and an error is told with its line', async ({ page }) => {
  await openLesson(page);
  const first = figure(page, '3.1');
  await write(page, first, loop.replace('    const groups', '    if (step > 1) for (;;);\n    const groups'));
  await button(page, '3.1', /^Run it here/).click();
  await expect(first.getByText(/^Step 1, reward/)).toBeVisible();
  await button(page, '3.1', 'Stop').click();
  await expect(first.getByText('Stopped.')).toBeVisible();
  await expect.poll(() => page.workers().length).toBe(0);
  await write(page, first, loop.replace('const rewards', 'const scores'));
  await button(page, '3.1', /^Run it here/).click();
  await expect(
    first.getByText(/^Line \d+: ReferenceError: rewards is not defined\. The recorded curves stay\.$/),
  ).toBeVisible();
  await button(page, '3.1', 'Reset').click();
  await expect(first.locator('.cm-content')).toContainText('const rewards');
});

test('a link gives a lesson no code to run', async ({ page }) => {
  await openLesson(page, `?text=throw&code=throw&embed=3.1#text=throw&code=throw&rate=-2`);
  await expect(figure(page, '3.1').locator('.cm-content')).toContainText('export async function train');
  await expect(figure(page, '3.1')).not.toContainText('throw');
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('lesson 3 does not scroll sideways', async ({ page }) => {
    await openLesson(page);
    await lookWithoutGuesses(page);
    await expectNarrow(page);
  });
});
