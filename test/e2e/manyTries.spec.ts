/**
 * Tests that thousands of tries need few elements and short tasks. Vite's development server serves the source files unbundled, so that the
 * test can import and write the page's state.
 */

import { expect, type Page, test } from '@playwright/test';
import { openPage, TINY } from './demo.ts';
import { expectShortTasks, watchMainThread } from './mainThread.ts';

const tries = (page: Page) => page.locator('#rollouts');

/** Shows `problems` x `n` tries of a few lines each, as a run does. */
async function showTries(page: Page, step: number, problems: number, n: number): Promise<void> {
  await page.evaluate(
    async ([of, groups, size]) => {
      const path = '/state/page.ts';
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
    for (const name of ['Show best and worst only', `Show all ${n} tries`])
      await tries(page).getByRole('button', { name }).click();
    expectShortTasks(await stop(), `${problems} x ${n} tries`);
    await expect(tries(page).locator('.try').first()).toBeVisible();
    expect(await tries(page).locator('.try').count()).toBeLessThan(200);
  });
