/** Tests lesson 5 in a browser: its figures, prediction and exercises by keyboard alone, and its loop in a worker. The engine is scripted. */

import { expect, type Page } from '@playwright/test';
import { readFileSync } from 'node:fs';
import { EXERCISES } from '../../demo/lessons/5-stale/exercises.ts';
import { delaysOf, NUMBERS } from '../../demo/lessons/5-stale/stills.ts';
import { expectNoViolations } from './axe.ts';
import { testInFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt, solveSome, write } from './lesson.ts';

const LESSON = '/lessons/5-stale/index.html';
const openLesson = (page: Page, rest = '') => openLessonAt(page, LESSON + rest, '.rows');

// The everyday tests work through lessons 1 and 3, which are built of the same parts.
testInFull('lesson 5 is done by keyboard alone, and its loop trains three steps in the tab', async ({ page }) => {
  const wrong = await openLesson(page);
  const rows = figure(page, '5.1');
  await rows.getByLabel('Pipeline').selectOption('on-policy');
  await expect(rows.locator('.says')).toContainText('100% by the newest weights');
  await expect(rows.locator('.rows .age-1')).toHaveCount(0);

  const loop = figure(page, '5.2');
  await expect(loop.locator('.says')).toContainText('Predict first');
  await page.getByLabel('only from 16').press('Space');
  await page.getByLabel('only from 16').press('Enter');
  await expect(page.locator('.predict [role=status]')).toContainText(`${NUMBERS['end-16']} with 16`);
  await expect(loop.locator('polyline')).toHaveCount(delaysOf('grpo').length);
  const text = readFileSync('demo/lessons/5-stale/stale.js', 'utf8');
  await write(page, loop, text.replace('steps = 60', 'steps = 3'));
  await loop.getByLabel(/^Your delay/).press('Home');
  await loop.getByLabel(/^Your delay/).press('ArrowRight');
  await expect(page).toHaveURL(/delay=1/);
  await loop.getByRole('button', { name: /^Run it here/ }).press('Enter');
  await expect(loop.getByText(/^Trained in .* 3 updates\.$/)).toBeVisible();
  await expect(loop.locator('.says')).toContainText('In this tab, delay 1: ');
  await expect(loop.locator('polyline')).toHaveCount(delaysOf('grpo').length + 1);

  const cap = figure(page, '5.3');
  await expect(cap.locator('.says')).toContainText(`cuts the weight of ${NUMBERS['cut-2']} of the tokens`);
  await cap.getByLabel(/^Cap/).press('Home');
  await expect(cap.locator('.says')).toContainText('A cap of 1.00 by token');
  await cap.getByLabel('Tokens', { exact: true }).selectOption('here');
  await expect(cap.locator('.source')).toHaveText('Step 3 of the run in this tab.');

  const times = figure(page, '5.4');
  await times.getByLabel(/^Slowest search/).press('Home');
  await expect(page).toHaveURL(/tool=0/);

  await solveSome(page, EXERCISES);
  await expectNoViolations(page, 'lesson 5');
  expect(wrong).toEqual([]);
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('lesson 5 does not scroll sideways', async ({ page }) => {
    await openLesson(page);
    await page.getByRole('button', { name: 'Look without a guess' }).click();
    await expectNarrow(page);
  });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  testInFull('lesson 5 shows its text and its pictures', async ({ page }) => {
    await page.goto(LESSON);
    await expect(figure(page, '5.1').locator('li')).toHaveCount(8);
    for (const number of ['5.2', '5.3', '5.4']) await expect(figure(page, number).locator('svg')).toBeVisible();
  });
});
