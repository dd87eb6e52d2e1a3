/**
 * Walks a workshop as a participant does: from the start page to a changed loss, and through all lessons by their links and buttons. It waits
 * for what the page shows, never for time.
 */

import { expect, type Page } from '@playwright/test';
import { address, expectState, onlyOnReal, testInFull, test, TINY, waitForStep } from './demo.ts';

/** Changes the loss of a running page so that it pulls no token, and waits until the curve of the gradient norm shows it. */
async function stopEveryPull(page: Page, onApply: () => void): Promise<void> {
  const norm = page.locator('figure[data-chart="grad"] .value');
  await expect(norm).toHaveText(/[1-9]/);
  await page.getByRole('button', { name: 'Change reward, loss or tools during the run' }).click();
  await page.getByRole('tab', { name: 'Loss' }).click();
  const panel = page.getByRole('tabpanel', { name: 'Loss' });
  await panel.getByLabel('Preset').selectOption('REINFORCE');
  const editor = page.getByRole('textbox', { name: 'Code of the loss' });
  await expect(editor).toContainText('-advantage * logProb');
  await editor.click();
  await page.keyboard.press('ControlOrMeta+A');
  await page.keyboard.insertText('export function loss() {\n  return 0;\n}\n');
  await panel.getByRole('button', { name: 'Apply' }).click();
  await expect(panel.getByRole('status')).toHaveText(/Applies at the next step|^Applied at/); // the sandbox has loaded it
  onApply();
  await expect(panel.getByRole('status')).toHaveText(/^Applied at step \d+/);
  await expect(norm).toHaveText(/^0(\.0+)?$/);
  await expect(page.getByRole('list', { name: 'Changes' })).toContainText('Loss replaced by');
}

/** Tries that get different rewards, so that the gradient is not 0. Every day, the default recipe of the start page would take longer. */
const SMALL = { ...TINY, steps: 9, n: 8, 'data.maxResponseLength': 64, 'rollout.maxNumSeqs': 16 };

test('from the start page: start, change the loss, see the curve change', async ({ page, engine }) => {
  engine.upTo(2);
  await page.goto(address(SMALL));
  await page.getByRole('button', { name: 'Start' }).click();
  await waitForStep(page, 2);
  await stopEveryPull(page, () => engine.upTo(4));
});

testInFull('the same on a real engine, with its seconds', async ({ page }) => {
  onlyOnReal();
  const started = Date.now();
  await page.goto('/');
  await page.getByRole('button', { name: 'Start' }).click();
  await waitForStep(page, 2);
  await stopEveryPull(page, () => {});
  const description = `${((Date.now() - started) / 1000).toFixed(0)} s from the start page to the changed curve; aim: under 300`;
  test.info().annotations.push({ type: 'measured', description });
  console.log(description);
});

/** Answers the six questions with their first options. */
async function answerQuestions(page: Page, title: string): Promise<void> {
  const form = page.getByRole('form', { name: title });
  const questions = form.getByRole('group');
  await expect(questions).toHaveCount(6);
  for (const question of await questions.all()) await question.getByRole('radio').first().check();
  await form.getByRole('button').click();
}

/** Expects that every link of the page leads to something that exists: to a page of the folder, a part of this one, or a paper. */
async function expectLinks(page: Page): Promise<void> {
  const links = await page.locator('a[href]').evaluateAll((all) => all.map((one) => (one as HTMLAnchorElement).href));
  for (const link of new Set(links)) {
    const url = new URL(link);
    if (url.origin !== new URL(page.url()).origin) {
      expect(url.protocol).toBe('https:');
      continue;
    }
    expect((await page.request.get(url.href)).status(), link).toBe(200);
    if (url.hash !== '' && url.pathname === new URL(page.url()).pathname)
      await expect(page.locator(`[id="${decodeURIComponent(url.hash.slice(1))}"]`), link).toHaveCount(1);
  }
}

/** Expects that the figures do not move by themselves, for a visitor who wants reduced motion. */
async function expectStill(page: Page): Promise<void> {
  const pictures = await page.evaluate(async () => {
    const drawn = () => [...document.querySelectorAll('main svg')].map(({ outerHTML }) => outerHTML).join('');
    const frame = () => new Promise(requestAnimationFrame);
    const frames = async (count: number) => {
      for (let i = 0; i < count; i++) await frame();
    };
    await frames(3); // what a prediction has revealed is drawn
    const [animations, first] = [document.getAnimations().length, drawn()];
    await frames(10);
    return { animations, isSame: drawn() === first };
  });
  expect(pictures).toEqual({ animations: 0, isSame: true });
}

/** Makes every prediction of a lesson, expects still figures, then starts the live work of every figure and waits for its first number. */
async function workThrough(page: Page): Promise<number> {
  for (const one of await page.locator('[data-figure]').all()) await expect(one.locator('.says')).toHaveCount(1);
  const open = page.locator('form.predict').filter({ has: page.getByRole('button', { name: 'Lock in' }) });
  for (let left = await open.count(); left > 0; left--) {
    const form = open.first();
    if ((await form.getByRole('radio').count()) > 0) await form.getByRole('radio').first().check();
    await form.getByRole('button', { name: 'Lock in' }).click();
    await expect(open).toHaveCount(left - 1);
  }
  await expectStill(page);
  for (const summary of await page.locator('main details.fold > summary').all()) await summary.click();
  // The label of a button changes to "Stop" while its work runs, so buttons are found by their position.
  const cells = page.locator('.buttons').filter({ hasText: /on two CPU cores\)/ });
  const places = await cells.evaluateAll((all) =>
    all.map((one, i) => {
      one.setAttribute('data-cell', `${i}`);
      return i;
    }),
  );
  for (const i of places) {
    const cell = page.locator(`[data-cell="${i}"]`);
    await cell.getByRole('button', { name: /on two CPU cores\)$/ }).click();
    await expect(cell.getByRole('status')).toHaveText(/\d/);
    await expect(cell.getByRole('status')).not.toContainText('WebGPU');
    const stop = cell.getByRole('button', { name: 'Stop' });
    await stop
      .or(cell.getByRole('button', { name: /last time/ }))
      .first()
      .click({ trial: true });
  }
  return places.length;
}

testInFull(
  'the workshop is walked: questions, every lesson with its live parts and links, questions again',
  async ({ page }) => {
    await page.emulateMedia({ reducedMotion: 'reduce' });
    const wrong: string[] = [];
    page.on('pageerror', (error) => wrong.push(error.message));
    await page.goto('/');
    await page.getByRole('button', { name: 'Start' }).click();
    await waitForStep(page, 1);
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await expectState(page, 'done');
    await page.getByRole('link', { name: 'lessons' }).click();
    await answerQuestions(page, 'Before the first lesson');
    await expect(page.getByText('Your answers are kept in this browser.')).toBeVisible();
    await expectLinks(page);
    const titles = await page.locator('[data-lesson] a').allInnerTexts();
    await page.getByRole('link', { name: titles[0] }).click();
    let live = 0;
    for (const [i, title] of titles.entries()) {
      await test.step(title, async () => {
        await expect(page.getByRole('heading', { level: 1 })).toHaveText(title);
        live += await workThrough(page);
        await expectLinks(page);
        const next = page.getByRole('navigation', { name: 'Next' }).getByRole('link');
        await expect(next).toContainText(titles[i + 1] ?? 'The six questions again');
        await next.click();
      });
    }
    expect(live).toBeGreaterThanOrEqual(titles.length);
    await page.getByRole('button', { name: 'I have done the lessons: ask me again' }).click();
    await answerQuestions(page, 'After the last lesson');
    await expect(page.getByRole('region', { name: 'Your answers' })).toContainText('Right before: ');
    for (const place of ['Under the loop', 'For the instructor', 'Handout', 'Class board']) {
      await page.getByRole('link', { name: place }).click();
      await expect(page.getByRole('heading', { level: 1 })).toBeVisible();
      await expectLinks(page);
      await page.getByRole('link', { name: 'lessons', exact: true }).first().click();
    }
    expect(wrong).toEqual([]);
  },
);
