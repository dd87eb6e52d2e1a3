/** Tests the visitor's own questions: before, during and after training, answered by the start model and the current one. */

import { expect, type Page } from '@playwright/test';
import { expectState, expectStep, onlyOnReal, testInFull, openPage, roundTrip, test, TINY } from './demo.ts';
import { downloadedLines, untimed } from './savedLines.ts';

const STEPS = 3;
const QUESTION = 'Tom puts 6 pens in each of 7 boxes. How many pens in all?';

const box = (page: Page) => page.getByRole('textbox', { name: /Your problem|Continue/ });
const newest = (page: Page) => page.locator('#ask .exchange').first();
const names = (page: Page) => newest(page).getByRole('heading');

/** Waits until all questioned models have answered. The first question opens the engine. */
async function answered(page: Page, count: number): Promise<void> {
  await expect(page.locator('#ask .exchange')).toHaveCount(count);
  await expect(newest(page).locator('.drawing')).toHaveCount(0);
}

const savedMetrics = async (page: Page) => untimed(await downloadedLines(page));

testInFull('an example that arrives late does not replace typed text', async ({ page }) => {
  let letGo = () => {};
  const held = new Promise<void>((resolve) => (letGo = resolve));
  await page.route('**/sums.js', async (route) => {
    await held;
    await route.fulfill({ contentType: 'text/javascript', path: 'examples/task-module.js' });
  });
  await openPage(page, { ...TINY, steps: 1, task: './sums.js' });
  await box(page).pressSequentially(QUESTION);
  letGo();
  // A run loads the same task module, later than the question box does. So once the run is done, the late example has arrived.
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  await expect(box(page)).toHaveValue(QUESTION);
  await page.getByRole('button', { name: 'Another example' }).click();
  await expect(box(page)).toHaveValue(/^What is \d+ \+ \d+/);
});

testInFull('another task replaces the example of the one before, and leaves typed text alone', async ({ page }) => {
  await openPage(page, TINY);
  await expect(box(page)).toHaveValue(/ \d+ /);
  await page.getByRole('radio', { name: /^Backwards/ }).check();
  await expect(box(page)).toHaveValue(/^[a-z]+$/);
  await box(page).fill(QUESTION);
  await page.getByRole('radio', { name: /^Countdown/ }).check();
  await expect(page).toHaveURL(/config=countdown/);
  await roundTrip(page);
  await expect(box(page)).toHaveValue(QUESTION);
  await page.getByRole('button', { name: 'Another example' }).click();
  await expect(box(page)).toHaveValue(/^(?!Tom)[^]*\d/);
});

test('questions before, during and after training do not change the run', async ({ page, engine }) => {
  await openPage(page, { ...TINY, steps: STEPS, 'data.maxResponseLength': 64 });
  await page.locator('#ask').scrollIntoViewIfNeeded();
  await expect(box(page)).not.toHaveValue(''); // the example is a problem of the task
  await box(page).fill(QUESTION);
  await box(page).press('Enter');
  await answered(page, 1);
  await expect(box(page)).toBeFocused();
  await expect(box(page)).toHaveValue('');
  await expect(newest(page).locator('.asked')).toHaveText(QUESTION);
  await expect(names(page)).toHaveText(['Before training']);
  let count = 1;
  while (!(await newest(page).locator('.tool').count()) && count < 60) {
    await page.getByRole('button', { name: 'Ask again' }).click();
    await answered(page, ++count);
  }
  await expect(newest(page).locator('.call').first()).toHaveText(/^\w+\(.+\)$/);
  await expect(newest(page).locator('.tool').first()).toContainText(/tool result.*\d/);
  await expect(page.locator('#ask [role=status]')).toContainText('Before training: ');

  await box(page).fill('pens '.repeat(600));
  await expect(page.locator('#ask-count')).toContainText('too long');
  await box(page).press('Enter');
  await expect(page.locator('#ask [role=alert]')).toContainText(/has \d+ tokens, but at most \d+ leave space/);

  await page.getByRole('button', { name: 'New conversation' }).click();
  engine.upTo(0);
  await page.getByRole('button', { name: 'Start' }).click();
  await engine.endStep(1);
  await expectStep(page, 1);
  await box(page).fill(QUESTION);
  await page.getByRole('button', { name: 'Ask', exact: true }).click();
  await answered(page, 1);
  await expect(names(page)).toHaveText(['Before training', 'After step 1']);

  engine.open();
  await expectState(page, 'done');
  await box(page).fill('How many are there if 2 more come?');
  await box(page).press('Enter');
  await answered(page, 2);
  await expect(names(page)).toHaveText(['Before training', `After step ${STEPS}`]);
  const asked = await savedMetrics(page);
  await page.getByRole('button', { name: 'New run' }).click();
  await expectState(page, 'done');
  expect(await savedMetrics(page)).toEqual(asked);
});

testInFull('trained to 0.8: answers and results before training are next to the current ones', async ({ page }) => {
  onlyOnReal();
  await openPage(page, { steps: 30, 'trainer.testFreq': 0, 'data.valMaxSamples': 128 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  const pass = await page.locator('figure[data-chart="pass"] .value').innerText();
  expect(Number(pass)).toBeGreaterThan(0.8);
  await page.getByText('The result as text').click();
  await expect(page.locator('#result pre')).toContainText(
    'pass@1 on held-out problems, before training and after 30 steps',
  );
  await page.getByLabel('Sampling').selectOption('greedy');
  await box(page).fill(QUESTION);
  await box(page).press('Enter');
  await answered(page, 1);
  await expect(names(page)).toHaveText(['Before training', 'After step 30']);
  console.log((await newest(page).innerText()).replaceAll('\n', ' | '), await page.locator('#result pre').innerText());
});
