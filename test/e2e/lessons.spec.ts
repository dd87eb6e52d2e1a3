/** Tests lesson 1 in a browser: its figures, prediction and exercises by keyboard alone, and its live button. */

import { expect, type Page } from '@playwright/test';
import { EXERCISES } from '../../demo/lessons/1-groups/exercises.ts';
import { COLOURS, expectNoViolations } from './axe.ts';
import { isFull, testInFull, test } from './demo.ts';
import { exercise, expectNarrow, figure, openLessonAt, solveSome, write } from './lesson.ts';

const LESSON = '/lessons/1-groups/index.html';
const openLesson = (page: Page, query = '') => openLessonAt(page, LESSON + query, '.one-try');

test('lesson 1 is done by keyboard alone, and draws a group in the tab', async ({ page }) => {
  const wrong = await openLesson(page);
  const first = figure(page, '1.1');
  await expect(first.getByText('advantage: ?')).toHaveCount(8);
  await page.getByLabel('8 times as hard').press('Space');
  await page.getByLabel('8 times as hard').press('Enter');
  await expect(page.locator('.predict [role=status]')).toContainText('has advantage 2.475, a right try of A 0.935');
  await expect(first.locator('.push b').first()).toHaveText('+2.47');
  await expect(first.locator('.push').first()).toContainText('you said +7.48');
  // With a reward of 0.95 instead of 1, the first try is still the only one above the others, so its advantage is the same.
  const slider = first.getByLabel(/^Reward:/).first();
  await slider.press('ArrowLeft');
  await expect(page).toHaveURL(/rewards=0\.95/);
  await expect(first.locator('.push b').first()).toHaveText('+2.47');
  await slider.press('Home');
  await expect(first.locator('.says')).toContainText('All 8 tries earned 0.00');
  await expect(page).toHaveURL(/rewards=0%2C0/);
  await figure(page, '1.2')
    .getByLabel(/^Tries per group/)
    .press('Home');
  await expect(figure(page, '1.2').locator('.says')).toContainText('63% of the groups of 2 agree');

  await solveSome(page, EXERCISES);

  await first.getByRole('button', { name: /^Draw it here/ }).press('Enter');
  await expect(first.getByText(/^Drawn in \d/)).toBeVisible();
  await expect(first.locator('.one-try')).toHaveCount(8);
  await expect(first.getByText('Drawn in this tab')).toBeVisible();
  await expectNoViolations(page, 'lesson 1', isFull ? COLOURS : { light: COLOURS.light });
  expect(wrong).toEqual([]);
});

test('the styles of the kit come before those of a lesson, which overrule them', async ({ request }) => {
  test.skip(test.info().project.name === 'real', "Vite's development server adds styles by scripts");
  for (const folder of ['2-losses', '4-tools', '5-stale', '6-claims', 'handout']) {
    const html = await (await request.get(`/lessons/${folder}/index.html`)).text();
    const links = [...html.matchAll(/<link rel="stylesheet"[^>]* href="\.\.\/\.\.\/([^"]+)"/g)].map(([, file]) => file);
    const texts = await Promise.all(links.map(async (file) => (await request.get(`/${file}`)).text()));
    expect(links.at(-1), folder).toContain(folder);
    expect(texts.findIndex((text) => text.includes('[data-embed]'))).toBe(0);
  }
});

testInFull('every mistake of an exercise gets its own sentence, then the hint and the answer', async ({ page }) => {
  await openLesson(page);
  for (const one of EXERCISES) {
    if (one.kind !== 'code') continue;
    const place = exercise(page, one.id);
    for (const { given, says } of one.wrong) {
      await write(page, place, given);
      await place.getByRole('button', { name: 'Run' }).click();
      await expect(place.locator('.result')).toHaveText(says);
    }
    await place.getByRole('button', { name: 'Show the answer' }).click();
    await place.getByRole('button', { name: 'Run' }).click();
    await expect(place.locator('.result')).toHaveText(`Right. ${one.why}`);
  }
});

testInFull('without a GPU every figure draws, and the live button says what is missing', async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await openLesson(page);
  await page.getByRole('button', { name: 'Look without a guess' }).click();
  for (const number of ['1.1', '1.2', '1.3']) await expect(figure(page, number).locator('svg').first()).toBeVisible();
  await figure(page, '1.1')
    .getByRole('button', { name: /^Draw it here/ })
    .click();
  await expect(figure(page, '1.1')).toContainText('Training needs WebGPU, which this browser lacks.');
  await expect(figure(page, '1.1')).toContainText('The recorded tries stay.');
});

testInFull('an address shows one figure alone, with its controls as moved and one hidden', async ({ page }) => {
  await openLesson(page, '?embed=1.1&hide=method,code#problem=3');
  await expect(figure(page, '1.1')).toContainText('Ben buys 2 eggs');
  await expect(figure(page, '1.1').getByLabel('Method')).toHaveCount(0);
  await expect(figure(page, '1.2')).toBeHidden();
  await expect(page.getByRole('heading', { level: 1 })).toBeHidden();
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('the lesson does not scroll sideways, also with larger text', async ({ page }) => {
    await openLesson(page);
    await page.getByRole('button', { name: 'Look without a guess' }).click();
    await expectNarrow(page);
  });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  testInFull('the lesson shows its text and its pictures', async ({ page }) => {
    await page.goto(LESSON);
    await expect(figure(page, '1.1').getByRole('table')).toHaveCount(2);
    for (const number of ['1.2', '1.3']) await expect(figure(page, number).locator('svg')).toBeVisible();
  });
});
