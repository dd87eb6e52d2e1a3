/** Tests lesson 4 in a browser: its figures, a tool and a reward as code, prediction and exercises by keyboard alone. */

import { expect, type Page } from '@playwright/test';
import { EXERCISES } from '../../demo/lessons/4-tools/exercises.ts';
import { NUMBERS } from '../../demo/lessons/4-tools/stills.ts';
import { expectNoViolations } from './axe.ts';
import { testInFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt, solveSome, write } from './lesson.ts';

const LESSON = '/lessons/4-tools/index.html';
/** A tool that answers every call with the same text. */
const OWN_TOOL = `export const name = 'calculator';
export const description = 'Says nothing.';
export const parameters = { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] };
export const run = () => 'none';
`;
const openLesson = (page: Page, rest = '') => openLessonAt(page, LESSON + rest, '.authored');

// The everyday tests work through lessons 1 and 3, which are built of the same parts.
testInFull('lesson 4 is done by keyboard alone, and trains on a reward in the tab', async ({ page, engine }) => {
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
  await write(page, second, OWN_TOOL);
  await second.getByRole('button', { name: 'Run it on the calls' }).press('Enter');
  await expect(second.locator('.says')).toContainText('Your tool agrees with the calculator in 0 of 16 calls.');
  await expect(page).toHaveURL(/tool=export/);
  await second
    .getByLabel('A problem of your own')
    .fill('Ann sold 40 pens on Monday and half as many on Friday. How many pens in all?');
  await second.getByRole('button', { name: /^Let the model use your tool/ }).press('Enter');
  await expect(second.getByText(/^Eight tries in .* of 8 tries called your tool\.$/)).toBeVisible();
  const tries = second.getByRole('group', { name: 'Calls of the model with your tool' });
  await expect(tries.getByRole('rowheader', { name: /^Try 8, / })).toBeVisible();
  await expect(tries.locator('.differs').first()).toHaveText('none');

  const third = figure(page, '4.3');
  await expect(third.locator('.says')).toContainText('Predict first');
  await page.getByLabel('it falls from the start').press('Space');
  await page.getByLabel('it falls from the start').press('Enter');
  await expect(page.locator('.predict [role=status]').first()).toContainText(
    `It went from ${NUMBERS['right-first']} to ${NUMBERS['right-last']}`,
  );
  await expect(third.locator('.one-try')).toHaveCount(4);
  await third.getByLabel(/^Step:/).press('Home');
  await expect(third).toContainText('Tries of step 1:');

  await third.getByLabel('Reward').first().selectOption('calls');
  await expect(third.locator('.says')).toContainText('Predict first below');
  await expect(third.locator('polyline')).toHaveCount(0);
  await page.getByLabel('Step 40: ').press('End');
  await page.getByLabel('Step 40: ').press('Enter');
  await expect(page.locator('.predict [role=status]').nth(1)).toContainText(
    'You drew 0.50, 0.50, 0.50, 0.50, 1.00. The run had',
  );
  await expect(third.locator('polyline.guess')).toHaveCount(1);
  await expect(third.locator('.paid')).toHaveCount(1);

  const fourth = figure(page, '4.4');
  await expect(fourth.locator('.says')).toContainText(/won: every move has advantage \+\d/);
  await fourth.getByLabel('Reward of game 5, turn 1').press('Home');
  await expect(page).toHaveURL(/turns=/);
  await expect(fourth.locator('.says')).toContainText(/won: every move has advantage \u2212\d/);
  await fourth.getByLabel('Show game').selectOption('0');
  await expect(fourth.locator('.boards pre').first()).toHaveText('123\n456\n78O');

  await solveSome(page, EXERCISES);

  await third.getByText('Write a reward and train on it').press('Enter');
  await third.getByRole('button', { name: 'reward length' }).press('Enter');
  engine.upTo(2); // both updates of step 1
  await third.getByRole('button', { name: /^Train 20 steps here/ }).press('Enter');
  await expect(third.getByText(/^Step 1 of 20/)).toBeVisible();
  await expect(third.locator('.source')).toContainText('Trained in this tab');
  await third.getByRole('button', { name: 'Stop' }).press('Enter');
  await expect(third.getByText('Stopped.')).toBeVisible();
  await expectNoViolations(page, 'lesson 4');
  expect(wrong).toEqual([]);
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('lesson 4 does not scroll sideways', async ({ page }) => {
    await openLesson(page);
    const look = page.getByRole('button', { name: 'Look without a guess' });
    await look.nth(1).click();
    await look.click();
    await expectNarrow(page);
  });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  testInFull('lesson 4 shows its text and its pictures', async ({ page }) => {
    await page.goto(LESSON);
    for (const number of ['4.1', '4.2', '4.4']) await expect(figure(page, number).getByRole('table')).toBeVisible();
    await expect(figure(page, '4.3').locator('svg')).toBeVisible();
  });
});
