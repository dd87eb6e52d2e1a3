/** Tests lesson 6 in a browser: its figures, prediction and exercises by keyboard alone, and an evaluation in the tab. */

import { expect, type Page } from '@playwright/test';
import { EXERCISES } from '../../demo/lessons/6-claims/exercises.ts';
import { NUMBERS } from '../../demo/lessons/6-claims/stills.ts';
import { expectNoViolations } from './axe.ts';
import { testInFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt, solveSome } from './lesson.ts';

const LESSON = '/lessons/6-claims/index.html';
const openLesson = (page: Page, rest = '') => openLessonAt(page, LESSON + rest, '.draw');

// The everyday tests work through lessons 1 and 3, which are built of the same parts.
testInFull('lesson 6 is done by keyboard alone, and evaluates in the tab', async ({ page }) => {
  const wrong = await openLesson(page);
  const last = figure(page, '6.5');
  await expect(last.locator('.says')).toContainText('Predict first');
  await page.getByLabel('these numbers cannot tell').press('Space');
  await page.getByLabel('these numbers cannot tell').press('Enter');
  await expect(page.locator('.predict [role=status]')).toContainText('You looked for what is missing.');
  await expect(last.locator('.says')).toContainText('dapo 0.984, sapo 0.953: p = ');
  await last.getByLabel(/^Seeds a side/).press('ArrowRight');
  await expect(last.locator('.says')).toContainText(`With 4 seeds a side p cannot be below ${NUMBERS['p-four']}.`);

  const first = figure(page, '6.1');
  await first.getByLabel('Model', { exact: true }).selectOption('own');
  await first.getByLabel(/^Problems/).press('End');
  await expect(first.locator('.says')).toContainText(`must differ by ${NUMBERS['show-1024']} to be told apart`);
  await expect(first.locator('.draw')).toHaveCount(200);

  const second = figure(page, '6.2');
  await expect(second.locator('.says')).toContainText(`${NUMBERS['held']} times, the second ${NUMBERS['naive']} times`);
  await second.getByLabel(/^Evaluation/).press('ArrowRight');
  await expect(page).toHaveURL(/draw=2/);

  const third = figure(page, '6.3');
  await third.getByLabel(/^Tries, k/).press('End');
  await expect(third.locator('.says')).toContainText(
    `${NUMBERS['start-32']} of the problems are solved before training`,
  );

  const fourth = figure(page, '6.4');
  await fourth.getByLabel(/^Evaluations/).press('Home');
  await expect(fourth.locator('.says')).toContainText('The best of 1 evaluations');

  await solveSome(page, EXERCISES);

  await first.getByRole('button', { name: /^Evaluate the shipped model here/ }).press('Enter');
  await expect(first.getByText(/^Evaluated in .* Your evaluation: /)).toBeVisible();
  await expect(first.locator('.dot.own')).toHaveCount(1);
  await expectNoViolations(page, 'lesson 6');
  expect(wrong).toEqual([]);
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('lesson 6 does not scroll sideways', async ({ page }) => {
    await openLesson(page);
    await page.getByRole('button', { name: 'Look without a guess' }).click();
    await expectNarrow(page);
  });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  testInFull('lesson 6 shows its text and its pictures', async ({ page }) => {
    await page.goto(LESSON);
    for (const number of ['6.1', '6.2', '6.3', '6.4', '6.5'])
      await expect(figure(page, number).locator('svg')).toBeVisible();
  });
});
