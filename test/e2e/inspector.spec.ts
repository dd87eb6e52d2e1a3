/** The tries of a step, and the token inspector: what it shows is the data's, and reading survives the steps that come. */

import { expect, type Page, test } from '@playwright/test';
import { expectState, openPage, points, stepsDone, TINY } from './demo.ts';
import { expectShortTasks, watchMainThread } from './mainThread.ts';

const tries = (page: Page) => page.locator('#rollouts');

/** A number of the token that is looked at. */
const fact = (page: Page, name: string) =>
  tries(page)
    .locator('.token-numbers div', { has: page.getByText(name, { exact: true }) })
    .locator('dd');

async function selectText(page: Page): Promise<void> {
  await page.evaluate(() => getSelection()!.selectAllChildren(document.querySelector('#rollouts .try .turns')!));
}

const selected = (page: Page) => page.evaluate(() => getSelection()!.toString());

test('tries follow the run until somebody marks text or picks a problem; focus stays where it is', async ({ page }) => {
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await expect.poll(() => points(page, 'reward'), { timeout: 90_000 }).toBeGreaterThan(0);

  const more = tries(page).locator('.group').first();
  await expect(more).toHaveAccessibleName(/^Problem 1: \d of 2 tries right$/);
  await selectText(page);
  const text = await selected(page);
  expect(text.length).toBeGreaterThan(3);
  const label = await tries(page).locator('.label').innerText();
  const done = await stepsDone(page);
  await expect.poll(() => stepsDone(page), { timeout: 60_000 }).toBeGreaterThan(done + 1);
  expect(await selected(page)).toBe(text);
  expect(await tries(page).locator('.label').innerText()).toBe(label);

  const follow = tries(page).locator('.follow');
  await follow.click();
  await expect(follow).toHaveText('Newest shown');
  const shownStep = async () => Number(/Step (\d+)/.exec(await tries(page).locator('.label').innerText())![1]);
  const first = await shownStep();
  const problem = tries(page).locator('.group[aria-pressed="true"]');
  await problem.focus();
  await page.evaluate(() => Object.assign(globalThis, { focused: document.activeElement }));
  await expect.poll(shownStep, { timeout: 60_000 }).toBeGreaterThan(first);
  expect(
    await page.evaluate(() => document.activeElement === (globalThis as unknown as { focused: Element }).focused),
    'the focus is where it was',
  ).toBe(true);

  await page.getByRole('button', { name: 'Pause' }).click();
  await expectState(page, 'paused', 60_000);
  await problem.focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await expect(tries(page).locator('.label')).toContainText('problem 2 of 2');
  await expect(tries(page).locator('.teaches')).toContainText(/tries|right|earned|Rewards/);
});

test('the inspector shows every token with its numbers, by pointer and by keys, while the run goes on', async ({
  page,
}) => {
  await openPage(page, { ...TINY, n: 4 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expect.poll(() => points(page, 'reward'), { timeout: 90_000 }).toBeGreaterThan(0);
  const one = tries(page).locator('.try').first();
  const before = await stepsDone(page);
  await expect(async () => {
    await page.mouse.up();
    await one.getByRole('button', { name: 'Look at the tokens' }).hover();
    await page.mouse.down();
    await expect(tries(page).locator('.follow')).toHaveText('Show the newest', { timeout: 1000 });
  }).toPass({ timeout: 60_000 });
  await expect.poll(() => stepsDone(page), { timeout: 60_000 }).toBeGreaterThan(before + 1);
  await page.mouse.up(); // a slow finger
  const tokens = one.getByRole('option');
  const count = Number(/(\d+) tokens?/.exec(await one.locator('footer').innerText())![1]);
  await expect(tokens).toHaveCount(count);

  await tokens.first().click();
  await expect(fact(page, 'Place')).toHaveText(`1 of ${count}`);
  const label = await tokens.first().getAttribute('aria-label');
  expect(label).toContain(`: probability ${await fact(page, 'Probability when drawn').innerText()}`);
  await expect(one.locator('.bars li')).toHaveCount(8, { timeout: 60_000 });
  const shares = await one.locator('.bars .share-text').allInnerTexts();
  expect(shares.reduce((sum, text) => sum + (text.startsWith('<') ? 0 : Number.parseFloat(text)), 0)).toBeLessThan(
    1.01,
  );

  await one.getByLabel('Advantage').check();
  await expect(tokens.first()).toHaveAttribute('aria-label', /: advantage /);
  const advantage = await one.locator('header .number', { hasText: 'advantage' }).locator('b').innerText();
  await expect(fact(page, 'Advantage')).toHaveText(advantage);

  await tokens.first().focus();
  await page.keyboard.press('ArrowRight');
  await expect(fact(page, 'Place')).toHaveText(`2 of ${count}`);
  await page.keyboard.press('End');
  await expect(fact(page, 'Place')).toHaveText(`${count} of ${count}`);
  await expect(one.getByRole('button', { name: 'Next token' })).toBeDisabled();
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');

  const done = await stepsDone(page);
  await expect.poll(() => stepsDone(page), { timeout: 60_000 }).toBeGreaterThan(done + 1);
  await expect(tokens.nth(1)).toBeFocused();
  await expect(tokens).toHaveCount(count);
  await expect(fact(page, 'Place')).toHaveText(`2 of ${count}`);
  const likeliest = await one.locator('.bars').innerText();
  await tokens.nth(2).hover();
  await expect(fact(page, 'Place')).toHaveText(`3 of ${count}`);
  await expect(one.locator('.bars li')).toHaveCount(8, { timeout: 60_000 });
  expect(await one.locator('.bars').innerText(), 'of the token under the pointer').not.toBe(likeliest);
  await expect(one.locator('.try-times')).toContainText('the model writes');
});

/** As a run would show them: `problems` x `n` tries of a few lines each. */
async function showTries(page: Page, step: number, problems: number, n: number): Promise<void> {
  await page.evaluate(
    async ([of, groups, size]) => {
      const path = '/app/page.ts';
      const { tries: signal } = (await import(path)) as { tries: { value: unknown } };
      const call = '<tool_call>{"name": "calculator", "arguments": {"expression": "48/2"}}</tool_call>';
      signal.value = Array.from({ length: groups * size }, (_, i) => ({
        step: of,
        group: Math.floor(i / size),
        problem: `p${i}`,
        answer: '24',
        messages: [
          { role: 'user', content: 'How many are half of 48?' },
          { role: 'assistant', content: call },
          { role: 'tool', content: '24' },
          { role: 'assistant', content: `#### ${i}` },
        ],
        promptMessages: 1,
        score: i % 2,
        acc: i % 2,
        advantage: i % 2 ? 1 : -1,
        stopReason: 'completed',
        numTurns: 2,
        numToolCalls: 1,
        responseTokens: 20,
      }));
    },
    [step, problems, n],
  );
}

for (const [problems, n] of [
  [200, 8],
  [1, 1600],
])
  test(`${problems * n} tries of ${problems} problems: few are in the page, and no task takes 50 ms`, async ({
    page,
    browser,
  }) => {
    await openPage(page, TINY);
    await showTries(page, 1, 1, 2);
    await expect(tries(page).locator('.try')).toHaveCount(2);
    const stop = await watchMainThread(browser, page);
    for (const step of [2, 3]) await showTries(page, step, problems, n);
    await tries(page)
      .getByRole('button', { name: `Show all ${n} tries` })
      .click();
    await expect(tries(page).locator('.try').first()).toContainText('calculator answers: 24');
    await page.mouse.wheel(0, 4000);
    await expect(tries(page).locator('.group')).toHaveCount(problems);
    for (const name of ['Show the best and the worst', `Show all ${n} tries`])
      await tries(page).getByRole('button', { name }).click();
    expectShortTasks(await stop(), `${problems} x ${n} tries`);
    await expect(tries(page).locator('.try').first()).toBeVisible();
    expect(await tries(page).locator('.try').count()).toBeLessThan(200);
  });
