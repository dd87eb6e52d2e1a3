/** Tests lesson 4 in a browser: its figures, a tool and a reward as code, prediction and exercises by keyboard alone. */

import { expect, type Page } from '@playwright/test';
import { EXERCISES } from '../../demo/lessons/4-tools/exercises.ts';
import { NUMBERS } from '../../demo/lessons/4-tools/stills.ts';
import { COLOURS, expectNoViolations } from './axe.ts';
import { isFull, skipUnlessFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt, solve, write } from './lesson.ts';

const LESSON = '/lessons/4-tools/index.html';
const openLesson = (page: Page, rest = '') => openLessonAt(page, LESSON + rest, '.authored');

test('lesson 4 is done by keyboard alone, and trains on a reward in the tab', async ({ page, engine }) => {
  const wrong = await openLesson(page);
  const first = figure(page, '4.1');
  await expect(first.locator('.says')).toContainText('100% of the group');
  await first.getByLabel('Train on').selectOption('tools');
  await expect(first.locator('.says')).toContainText(`${NUMBERS['tool-share']} on the tool's`);
  await expect(first.locator('.by-tool.trained').first()).toBeVisible();

  const second = figure(page, '4.2');
  await second.getByRole('button', { name: 'Run it on the calls' }).press('Enter');
  await expect(second.locator('.says')).toContainText('Your tool agrees with the calculator in 16 of 16 calls.');
  await write(page, second, 'export const name = 1;');
  await second.getByRole('button', { name: 'Run it on the calls' }).press('Enter');
  await expect(second.locator('.result')).toContainText('there is no "export const name"');

  const third = figure(page, '4.3');
  await expect(third.locator('.says')).toContainText('Predict first');
  await page.getByLabel('it falls from the start').press('Space');
  await page.getByLabel('it falls from the start').press('Enter');
  await expect(page.locator('.predict [role=status]')).toContainText(
    `It went from ${NUMBERS['right-first']} to ${NUMBERS['right-last']}`,
  );
  await expect(third.locator('.one-try')).toHaveCount(4);
  await third.getByLabel(/^Step:/).press('Home');
  await expect(third).toContainText('Tries of step 1:');

  const fourth = figure(page, '4.4');
  await fourth.getByLabel('Reward of try 1, turn 1').press('Home');
  await expect(page).toHaveURL(/turns=-1/);
  await expect(fourth.locator('.says')).toContainText('has advantage');

  for (const one of EXERCISES) await solve(page, one);
  await expect(page.locator('[data-progress]')).toContainText('3 of 3 exercises solved');

  await third.getByText('Write a reward and train on it').press('Enter');
  await third.getByRole('button', { name: 'reward length' }).press('Enter');
  engine.upTo(2); // both updates of step 1
  await third.getByRole('button', { name: /^Train 30 steps here/ }).press('Enter');
  await expect(third.getByText(/^Step 1 of 30/)).toBeVisible();
  await expect(third.locator('.source')).toContainText('Trained in this tab');
  await third.getByRole('button', { name: 'Stop' }).press('Enter');
  await expect(third.getByText('Stopped.')).toBeVisible();
  await expectNoViolations(page, 'lesson 4', isFull ? COLOURS : { light: COLOURS.light });
  expect(wrong).toEqual([]);
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  test('lesson 4 does not scroll sideways', async ({ page }) => {
    skipUnlessFull();
    await openLesson(page);
    await page.getByRole('button', { name: 'Look without a guess' }).click();
    await expectNarrow(page, false);
  });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  test('lesson 4 shows its text and its pictures', async ({ page }) => {
    skipUnlessFull();
    await page.goto(LESSON);
    for (const number of ['4.1', '4.2', '4.4']) await expect(figure(page, number).getByRole('table')).toBeVisible();
    await expect(figure(page, '4.3').locator('svg')).toBeVisible();
  });
});
