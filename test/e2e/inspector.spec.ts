/**
 * Tests the tries of a step and the token inspector: the inspector shows the right data, and later steps do not change what a visitor is
 * reading.
 */

import { expect, type Page } from '@playwright/test';
import { expectState, expectStep, openPage, test, testInFull, TINY } from './demo.ts';

const tries = (page: Page) => page.locator('#rollouts');

/** Locates a row of the inspector: one number of the selected token. */
const fact = (page: Page, name: string) =>
  tries(page)
    .locator('.token-numbers div', { has: page.getByText(name, { exact: true }) })
    .locator('dd');

async function selectText(page: Page): Promise<void> {
  await page.evaluate(() => getSelection()!.selectAllChildren(document.querySelector('#rollouts .try .turns')!));
}

const selected = (page: Page) => page.evaluate(() => getSelection()!.toString());

testInFull('a held problem is dropped when another run starts', async ({ page, engine }) => {
  engine.upTo(0);
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await engine.endStep(1);
  await expectStep(page, 1);
  await tries(page).locator('.group').nth(1).click();
  engine.open();
  await expectState(page, 'done');
  const slider = page.getByRole('slider', { name: 'Step' });
  await expect(slider).toHaveAttribute('aria-valuetext', /^Step 1 of 2/);
  await page.getByRole('button', { name: 'New run' }).click();
  await expectState(page, 'done');
  await expect(tries(page).locator('.follow')).toHaveText('Live');
  await expect(tries(page).locator('.label')).toContainText('Step 2,');
  await expect(slider).toHaveAttribute('aria-valuetext', /^Step 2 of 2/);
});

testInFull(
  'tries follow the run until the visitor selects text or picks a problem; the focus does not move',
  async ({ page, engine }) => {
    await openPage(page, { ...TINY, steps: 6 });
    engine.upTo(0);
    await page.getByRole('button', { name: 'Start' }).click();
    await engine.endStep(1);
    await expectStep(page, 1);

    const first = tries(page).locator('.group').first();
    await expect(first).toHaveAccessibleName(/^Problem 1: \d of 2 tries correct$/);
    await selectText(page);
    const text = await selected(page);
    expect(text.length).toBeGreaterThan(3);
    const label = await tries(page).locator('.label').innerText();
    await engine.endStep(3);
    await expectStep(page, 3);
    expect(await selected(page)).toBe(text);
    expect(await tries(page).locator('.label').innerText()).toBe(label);
    await expect(page.getByRole('slider', { name: 'Step' }), 'the step that is held').toHaveValue('1');

    const follow = tries(page).locator('.follow');
    await follow.click();
    await expect(follow).toHaveText('Live');
    await expect(tries(page).locator('.label')).toContainText('Step 3,');
    await tries(page).locator('.group').nth(1).focus(); // which has no try when the next step begins
    await page.evaluate(() => Object.assign(globalThis, { focused: document.activeElement }));
    await engine.endStep(4);
    await expect(tries(page).locator('.label')).toContainText('Step 4,');
    expect(await page.evaluate('document.activeElement === focused'), 'the focus is where it was').toBe(true);

    await page.getByRole('button', { name: 'Pause' }).click();
    engine.open();
    await expectState(page, 'paused');
    await first.focus();
    await page.keyboard.press('Home');
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await expect(tries(page).locator('.label')).toContainText('problem 2 of 2');
    await expect(tries(page).locator('.teaches')).toContainText(/tries|correct|earned|Rewards/);
  },
);

test('the inspector shows the numbers of every token, by pointer and by keys, while the run continues', async ({
  page,
  engine,
}) => {
  await openPage(page, { ...TINY, steps: 5, n: 4 });
  engine.upTo(0);
  await page.getByRole('button', { name: 'Start' }).click();
  await engine.endStep(1);
  await expectStep(page, 1);
  const one = tries(page).locator('.try').first();
  await one.getByRole('button', { name: 'Inspect tokens' }).hover();
  await page.mouse.down();
  await expect(tries(page).locator('.follow')).toHaveText('Back to live');
  await engine.endStep(3);
  await expectStep(page, 3);
  await page.mouse.up(); // a slow finger
  const tokens = one.getByRole('option');
  const count = Number(/(\d+) tokens?/.exec(await one.locator('footer').innerText())![1]);
  await expect(tokens).toHaveCount(count);

  await tokens.first().click();
  await expect(fact(page, 'Position')).toHaveText(`1 of ${count}`);
  const label = await tokens.first().getAttribute('aria-label');
  expect(label).toContain(`: probability ${await fact(page, 'Probability at sampling').innerText()}`);
  await expect(one.locator('.bars li')).toHaveCount(8);
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
  await expect(fact(page, 'Position')).toHaveText(`2 of ${count}`);
  await page.keyboard.press('End');
  await expect(fact(page, 'Position')).toHaveText(`${count} of ${count}`);
  await expect(one.getByRole('button', { name: 'Next token' })).toBeDisabled();
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');

  engine.open();
  await expectState(page, 'done');
  await expect(tokens.nth(1)).toBeFocused();
  await expect(tokens).toHaveCount(count);
  await expect(fact(page, 'Position')).toHaveText(`2 of ${count}`);
  const likeliest = await one.locator('.bars').innerText();
  await tokens.nth(2).hover();
  await expect(fact(page, 'Position')).toHaveText(`3 of ${count}`);
  await expect(one.locator('.bars li')).toHaveCount(8);
  await expect.poll(() => one.locator('.bars').innerText(), 'of the token under the pointer').not.toBe(likeliest);
  await expect(one.locator('.try-times')).toContainText('generating');
});
