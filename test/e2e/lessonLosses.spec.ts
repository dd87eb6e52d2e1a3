/**
 * Tests lesson 2 in a browser: its figures, a loss that the reader writes, prediction and exercises by keyboard alone, and its live button.
 */

import { expect, type Page } from '@playwright/test';
import { EXERCISES } from '../../demo/lessons/2-losses/exercises.ts';
import { expectNoViolations } from './axe.ts';
import { testInFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt, solveSome, write } from './lesson.ts';

const LESSON = '/lessons/2-losses/index.html';
const openLesson = (page: Page, rest = '') => openLessonAt(page, LESSON + rest, '.pulls');

/** A clip that lets the ratio of a token with a positive advantage rise to 3, where PPO clips at 1.2. */
const OWN = `export function loss({ advantage, ratio, clipLow }) {
  return Math.max(-advantage * ratio, -advantage * Math.min(Math.max(ratio, 1 - clipLow), 3));
}
`;

// The everyday tests work through lessons 1 and 3, which are built of the same parts.
testInFull('lesson 2 is done by keyboard alone, and draws an own loss with the others', async ({ page }) => {
  const wrong = await openLesson(page);
  const first = figure(page, '2.1');
  await expect(first.locator('.says')).toHaveText(
    'At ratio 1.30 and advantage +1.00: PPO holds the token, CISPO pulls +1.30, SAPO pulls +1.27.',
  );
  await first.getByLabel(/^Advantage/).press('Home');
  await expect(first.locator('.says')).toContainText('advantage \u22123.00: PPO pulls \u22123.90');
  await first.getByLabel(/No clip/).press('Space');
  await expect(page).toHaveURL(/advantage=-3&show=grpo%2Ccispo%2Csapo%2Cunclipped/);
  await first.getByLabel(/^Advantage/).press('End');

  await first.getByText('Write a loss yourself').press('Enter');
  await write(page, first, OWN);
  await page.keyboard.press('Control+Enter');
  await expect(first.locator('.says')).toContainText('Yours pulls +3.90');
  await expect(first.locator('.pulls .loss-own')).toHaveCount(2); // it jumps at 3
  await first.getByLabel(/^Ratio:/).press('End');
  await expect(first.locator('.says')).toContainText('Yours holds the token');
  await write(page, first, 'export function loss() {\n  return ratio;\n}');
  await page.keyboard.press('Control+Enter');
  await expect(first.locator('.result')).toHaveText(/^Line 2: ReferenceError/);

  const second = figure(page, '2.2');
  await expect(second.locator('.says')).toContainText('Predict first');
  await page.getByLabel('on the unlikely ones').press('Space');
  await page.getByLabel('on the unlikely ones').press('Enter');
  await expect(page.locator('.predict [role=status]')).toContainText('On none.');
  await expect(second.locator('.says')).toContainText('ratio 1.00. GRPO +0.54, DAPO +0.94, CISPO +0.94, SAPO +0.54');
  await second.getByLabel('Updates since sampling').selectOption('1');
  await expect(second.locator('.says')).toContainText('ratio 1.64. GRPO held, DAPO held, CISPO +1.54');
  await expect(second.locator('.one-loss').first()).toContainText('8%');
  await second.locator('.one-loss').first().locator('[tabindex="0"]').press('ArrowRight');
  await expect(second.locator('.says')).toContainText('Token 2');

  await expect(second.locator('.one-loss')).toHaveCount(5); // the loss of figure 2.1 fails
  await write(page, first, OWN);
  await page.keyboard.press('Control+Enter');
  await expect(second.getByRole('region', { name: 'Yours' }).locator('.token').first()).toBeVisible();
  await expect(second.locator('.says')).toHaveText(/GSPO [^,]+, Yours \S+\.$/);

  await figure(page, '2.3')
    .getByLabel(/^Tokens of a right try/)
    .press('Home');
  await expect(figure(page, '2.3').locator('.says')).toContainText('20.0% is on the right tries by token-mean, 50.0%');

  await solveSome(page, EXERCISES);

  await second.getByRole('button', { name: /^Make the updates here/ }).press('Enter');
  await expect(second.getByText(/^Updated in \d/)).toBeVisible();
  await expect(second.getByText('Sampled and updated in this tab')).toBeVisible();
  await expectNoViolations(page, 'lesson 2');
  expect(wrong).toEqual([]);
});

testInFull('a link draws the loss that is in it', async ({ page }) => {
  await openLesson(page, `?embed=2.1#advantage=1&code=${encodeURIComponent(OWN)}`);
  await expect(figure(page, '2.1').locator('.says')).toContainText('Yours pulls +1.30');
  await expect(figure(page, '2.3')).toBeHidden();
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('lesson 2 does not scroll sideways, and shows one loss at a time', async ({ page }) => {
    await openLesson(page);
    await page.getByRole('button', { name: 'Look without a guess' }).click();
    await expect(page.locator('.one-loss').filter({ visible: true })).toHaveCount(1);
    await figure(page, '2.2').getByLabel('Loss').selectOption('cispo');
    await expect(page.locator('.one-loss').filter({ visible: true })).toContainText('CISPO');
    await expectNarrow(page);
  });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  testInFull('lesson 2 shows its text and its pictures', async ({ page }) => {
    await page.goto(LESSON);
    await expect(figure(page, '2.2').getByRole('table')).toBeVisible();
    for (const number of ['2.1', '2.3']) await expect(figure(page, number).locator('svg').first()).toBeVisible();
  });
});
