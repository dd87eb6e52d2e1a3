/** Tests lesson 7 in a browser, the contents page with its six questions, the class board and the handout. */

import { expect } from '@playwright/test';
import { expectNoViolations } from './axe.ts';
import { encodeResult, testInFull, test } from './demo.ts';
import { expectNarrow, figure, openLessonAt } from './lesson.ts';

const LESSON = '/lessons/7-faults/index.html';

// The everyday tests work through lessons 1 and 3, which are built of the same parts.
testInFull('lesson 7: a run is diagnosed by keyboard alone, and repaired in the tab', async ({ page }) => {
  const wrong = await openLessonAt(page, LESSON);
  const first = figure(page, '7.1');
  await page.getByRole('button', { name: 'Run 2', exact: true }).press('Enter');
  await expect(page).toHaveURL(/run=2/);
  await expect(first.locator('.chart')).toHaveCount(4);
  await expect(first.getByRole('button', { name: 'loss', exact: true })).toHaveAccessibleDescription(
    /^Policy loss, whose gradient the optimizer follows\. .* Do not judge a run by it/,
  );
  await expect(figure(page, '7.2').locator('.says')).toHaveText('Predict first what is wrong with run 2.');
  await first.getByLabel(/^Step:/).press('Home');
  await expect(first.getByRole('heading', { name: 'Tries of step 1' })).toBeVisible();
  await expect(first.locator('.run-try').first()).toBeVisible();
  await page.getByLabel('the learning rate is too low').press('Space');
  await page.getByLabel('the learning rate is too low').press('Enter');
  await expect(first.locator('.chart')).toHaveCount(12);

  const form = page.getByRole('form', { name: 'Diagnosis of run 2' });
  await form.getByRole('button', { name: 'Check' }).press('Enter');
  await expect(form).toContainText('Choose a chart or the tries to point at, a next check.');
  await page.getByLabel('point at it: loss').press('Space');
  await form.getByLabel('Next check').selectOption('rate');
  await form.getByRole('button', { name: 'Check' }).press('Enter');
  await expect(form).toContainText('0 of 3 points.');
  await expect(form).toContainText(
    /If the learning rate were too low, no update would move the model.*Here it reaches 0\.0/,
  );
  await form.getByLabel('Cause').selectOption('cut');
  await page.getByLabel('point at it: share of tries that were cut').press('Space');
  await form.getByLabel('Next check').selectOption('limit');
  await form.getByRole('button', { name: 'Check' }).press('Enter');
  await expect(form).toContainText('3 of 3 points.');
  await expect(form).toContainText('data.maxResponseLength was 24');
  await expect(page.locator('[data-progress]')).toContainText('1 of 6 exercises solved');

  await figure(page, '7.2')
    .getByRole('button', { name: /^Repair it here/ })
    .press('Enter');
  await expect(figure(page, '7.2').getByText(/^Trained in \d/)).toBeVisible();
  await expect(figure(page, '7.2').locator('.says')).toContainText(
    'Trained in this tab with data.maxResponseLength=160',
  );
  await expectNoViolations(page, 'lesson 7');
  expect(wrong).toEqual([]);
});

test('the contents list the lessons, and six questions are asked before and after', async ({ page }) => {
  const wrong = await openLessonAt(page, '/lessons/index.html');
  await expect(page.locator('[data-lesson="7-faults"]')).toContainText('Find the fault');
  const before = page.getByRole('form', { name: 'Before the first lesson' });
  await before.getByRole('button').press('Enter');
  await expect(before).toContainText('Answer question 1 too.');
  for (const label of [
    /^Yes: a model/,
    /^All eight become/,
    /^The one with 33/,
    /^The learning rate/,
    /^Yes$/,
    /^1, and if/,
  ])
    await before.getByLabel(label).press('Space');
  await before.getByRole('button').press('Enter');
  await page.reload();
  await page.getByRole('button', { name: /ask me again/ }).press('Enter');
  const after = page.getByRole('form', { name: 'After the last lesson' });
  for (const label of [/^No: this/, /^Nothing/, /^The one with 33/, /^The reward pays/, /^That has not/, /^1, and if/])
    await after.getByLabel(label).press('Space');
  await after.getByRole('button').press('Enter');
  await expect(page.getByText('Right before: 2 of 6. Right after: 6 of 6.')).toBeVisible();
  await expectNoViolations(page, 'contents');
  await page.getByRole('button', { name: 'Forget everything' }).press('Enter');
  await expect(before).toBeVisible();
  expect(wrong).toEqual([]);
});

test('the class board draws the curves of pasted links, and names the damaged ones', async ({ page }) => {
  const wrong = await openLessonAt(page, '/lessons/board/index.html');
  const link = async (seed: number) => {
    const history = [1, 2, 3].map((step) => ({
      'training/global_step': step,
      'critic/score/mean': 0.2 * step + 0.1 * seed,
    }));
    const result = { history, adapter: '', seconds: 1, trainedTokens: 1, changes: [] };
    return `http://127.0.0.1/?seed=${seed}#r=${await encodeResult(result)}`;
  };
  await page
    .getByLabel('Links to results')
    .fill(`Ann: ${await link(1)}\n${await link(2)}\nhttp://127.0.0.1/?seed=3#r=AQAA`);
  await expect(page.getByRole('status')).toHaveText(
    '2 results: the last reward is from 0.70 to 0.80, with a mean of 0.75.',
  );
  await expect(page.locator('.curve.one')).toHaveCount(2);
  await expect(page.locator('.result.wrong')).toContainText('seed 3: The result in this link is damaged');
  await expectNoViolations(page, 'class board');
  await page.getByRole('button', { name: 'Empty the board' }).press('Enter');
  await expect(page.locator('.curve.one')).toHaveCount(0);
  expect(wrong).toEqual([]);
});

testInFull('the handout prints on three pages, and the schedule names only lessons that exist', async ({ page }) => {
  await openLessonAt(page, '/lessons/handout/index.html');
  const pages = (await page.pdf({ preferCSSPageSize: true })).toString('latin1').match(/\/Type\s*\/Page\b(?!s)/g);
  expect(pages).toHaveLength(3);
  await expectNoViolations(page, 'handout');
  await page.goto('/lessons/index.html');
  const numbers = await page
    .locator('[data-lesson]')
    .evaluateAll((all) => all.map((one) => one.getAttribute('data-lesson')![0]));
  await page.goto('/lessons/teach/index.html');
  const named = (await page.locator('table').first().innerText()).match(/Lesson \d/g)!.map((text) => text.at(-1)!);
  for (const number of named) expect(numbers).toContain(number);
  await expectNoViolations(page, 'instructor');
});

test.describe('360 px', () => {
  test.use({ viewport: { width: 360, height: 740 } });

  for (const address of [
    LESSON,
    '/lessons/index.html',
    '/lessons/board/index.html',
    '/lessons/teach/index.html',
    '/lessons/handout/index.html',
    '/lessons/under/index.html',
  ])
    testInFull(`${address} does not scroll sideways`, async ({ page }) => {
      await openLessonAt(page, address);
      if (address === LESSON) await page.getByRole('button', { name: 'Look without a guess' }).click();
      await expectNarrow(page);
    });
});

test.describe('without JavaScript', () => {
  test.use({ javaScriptEnabled: false });

  testInFull('the lesson shows its text and the rewards of six runs', async ({ page }) => {
    await page.goto(LESSON);
    await expect(figure(page, '7.1').locator('svg')).toHaveCount(6);
  });
});
