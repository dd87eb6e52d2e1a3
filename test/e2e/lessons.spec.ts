/** Tests lesson 1 and the appendix in a browser: their figures, predictions and exercises by keyboard alone, and their live buttons. */

import { expect, type Page } from '@playwright/test';
import { runnerImport } from 'vite';
import { EXERCISES } from '../../demo/lessons/1-groups/exercises.ts';
import type * as under from '../../demo/lessons/under/exercises.ts';
import { lessons } from '../../scripts/lib/lessons.mjs';
import { expectNoViolations } from './axe.ts';
import { onlyBuilt, test, testIf, testInFull } from './demo.ts';
import { exercise, expectNarrow, figure, openLessonAt, solve, solveSome, write } from './lesson.ts';

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
  await expectNoViolations(page, 'lesson 1');
  expect(wrong).toEqual([]);
});

testInFull('the appendix is done by keyboard alone, on a real engine with its live parts', async ({ page }) => {
  const wrong = await openLessonAt(page, '/lessons/under/index.html', '[data-figure="A.3"] svg');
  const [sum, sentence, gradient] = ['A.1', 'A.2', 'A.3'].map((number) => figure(page, number));
  await expect(sum.locator('.says')).toContainText('Predict first');
  await page.getByLabel('nearly: the last digits differ').press('Space');
  await page.getByLabel('nearly: the last digits differ').press('Enter');
  await expect(sum.locator('.says')).toContainText('of the last bit from the sum by 1 thread');
  await sum.getByLabel(/^Threads/).press('Home');
  await expect(sum.locator('.says')).toHaveText(/^Added by 1 thread: [^,]*\. With 64 bits/);
  await expect(sentence.locator('.says')).toContainText('are equal, bit for bit');
  await gradient.getByLabel('Numbers with').selectOption('64');
  await gradient.getByLabel(/^Step of the difference/).press('Home');
  await expect(page).toHaveURL(/bits=64&exponent=-1/);
  await expect(gradient.locator('.says')).toContainText('With a step of 1e1 and 64 bits');

  // Node cannot import the exercises itself, because they import a file as text (`?raw`). So Vite does.
  const { module } = await runnerImport<typeof under>('./demo/lessons/under/exercises.ts', { configFile: false });
  const isReal = test.info().project.name === 'real';
  const solvable = module.EXERCISES.filter(({ kind }) => isReal || kind !== 'kernel');
  for (const one of solvable) await solve(page, one);
  await expect(page.locator('[data-progress]')).toContainText(`${solvable.length} of 2 exercises solved`);
  await expectNoViolations(page, 'appendix');
  if (isReal) {
    await sentence.getByLabel(/^Your answer/).fill('#### 45');
    await sentence.getByRole('button', { name: /^Compute it twice here/ }).press('Enter');
    await expect(sentence.getByText(/^Computed in .* \d tokens\.$/)).toBeVisible();
    await expect(sentence.locator('.says')).toContainText('are equal, bit for bit');
    await expect(page).toHaveURL(/text=/);
    await gradient.getByRole('button', { name: /^Run the kernels here/ }).press('Enter');
    await expect(gradient.locator('.source')).toContainText('computed in this tab');
  }
  expect(wrong).toEqual([]);
});

test('the styles of the kit come before those of a lesson, which overrule them', async ({ request }) => {
  onlyBuilt();
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

/** Text of a live button that was not pressed before. */
const LIVE = /on two CPU cores\)$/;

for (const folder of [...lessons().map((one) => one.folder), 'under'])
  testIf(folder === '1-groups')(
    `without a GPU all figures of ${folder} draw, and every live button says what is missing`,
    async ({ page }) => {
      await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
      await openLessonAt(page, `/lessons/${folder}/index.html`, '[data-figure] .says');
      const look = page.getByRole('button', { name: 'Look without a guess' });
      for (let left = await look.count(); left > 0; left--) {
        await look.first().click();
        await expect(look).toHaveCount(left - 1);
      }
      for (const one of await page.locator('[data-figure]').all()) {
        await expect(one.locator('.says')).not.toBeEmpty();
        await expect(one.locator('svg, table, .token, .one-try, .rows, .authored').first()).toBeVisible();
      }
      for (const fold of await page.locator('main details.fold > summary').all()) await fold.click();
      for (const cell of await page
        .locator('.buttons')
        .filter({ has: page.getByRole('button', { name: LIVE }) })
        .all()) {
        await cell.getByRole('button', { name: LIVE }).click();
        await expect(cell.getByRole('status')).toHaveText(
          /^Training needs WebGPU, which this browser lacks\..* stay\.$/,
        );
      }
    },
  );

testInFull('an address shows one figure alone, with its controls as moved and one hidden', async ({ page }) => {
  await openLesson(page, '?embed=1.1&hide=method,code#problem=3');
  await expect(figure(page, '1.1')).toContainText('Ben buys 2 eggs');
  await expect(figure(page, '1.1').getByLabel('Method')).toHaveCount(0);
  await expect(figure(page, '1.2')).toBeHidden();
  await expect(page.getByRole('heading', { level: 1 })).toBeHidden();
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  testInFull('the lesson does not scroll sideways', async ({ page }) => {
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
