/** Tests accessibility: axe in every state of the page, its main path by keyboard alone, and explanations of terms. */

import { expect, type Page } from '@playwright/test';
import { COLOURS, expectNoViolations } from './axe.ts';
import {
  address,
  encodeResult,
  expectPoints,
  expectState,
  expectStep,
  isFull,
  openDrawer,
  openPage,
  test,
  testInFull,
  TINY,
} from './demo.ts';

test('axe finds nothing from idle to stopped, with every panel opened', async ({ page, engine }) => {
  await openPage(page, { ...TINY, steps: 3, 'trainer.testFreq': 2 });
  await expectContrast(page);
  await page.getByText('Glossary').click();
  await page.getByText('More settings').click();
  if (isFull) await expectNoViolations(page, 'idle, settings and words open');
  engine.upTo(0);
  await page.getByRole('button', { name: 'Start' }).click();
  await engine.endStep(1);
  await expectPoints(page, 'reward', 1);
  await page.getByRole('button', { name: 'Change reward, loss or tools during the run' }).click();
  await expect(page.getByRole('textbox', { name: 'Code of the reward' })).toBeVisible();
  const one = page.locator('#rollouts .try').first();
  await one.getByRole('button', { name: 'Inspect tokens' }).click();
  await one.getByRole('option').first().click();
  await expectNoViolations(page, 'running, editor and inspector open');
  await page.getByRole('button', { name: 'Pause' }).click();
  engine.open();
  await expectState(page, 'paused');
  await page.getByRole('textbox', { name: 'Your problem' }).press('Enter');
  await expect(page.locator('#ask .exchange')).toHaveCount(1);
  await expect(page.locator('#ask .drawing')).toHaveCount(0);
  await page.getByRole('tab', { name: 'Settings' }).click();
  if (isFull) await expectNoViolations(page, 'paused, a question answered, live settings open');
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await expectState(page, 'done');
  await page.getByText('The result as text').click();
  await openDrawer(page, 'runs');
  await page.locator('#runs .save summary').click();
  await expectNoViolations(page, 'stopped, result and ways to save open', COLOURS);
});

testInFull(
  'axe finds nothing with a result from a link, with a link to copy by hand, and in the recorded run',
  async ({ page }) => {
    // Simulates a browser that forbids access to the clipboard.
    await page.addInitScript(() => {
      Clipboard.prototype.writeText = () => Promise.reject(new DOMException('no', 'NotAllowedError'));
    });
    const history = [1, 2, 3].map((step) => ({ 'training/global_step': step, 'critic/score/mean': step / 4 }));
    const sent = await encodeResult({ history, adapter: 'a GPU', seconds: 480, trainedTokens: 6000, changes: [] });
    await page.goto(`${address({ seed: 3 })}#r=${sent}`);
    await expect(page.getByRole('region', { name: 'Shared run' })).toContainText('3 steps, seed 3, 8 min');
    await page.getByRole('button', { name: 'Copy link' }).click();
    const link = page.getByLabel('Copy this link');
    await expect(link).toHaveValue(/\?seed=3#r=/);
    await link.focus();
    expect(
      await link.evaluate((input: HTMLInputElement) => input.value.slice(input.selectionStart!, input.selectionEnd!)),
    ).toBe(await link.inputValue());
    await expectNoViolations(page, 'a result from a link, to be copied by hand');
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('button', { name: 'Watch a recorded run' }).click();
    await expect(page.getByRole('region', { name: 'Recorded run' })).toBeVisible();
    await expectNoViolations(page, 'recorded run');
  },
);

testInFull('axe finds nothing in a failed run', async ({ page }) => {
  await page.route(/engine\.worker/, (route) => route.fulfill({ status: 404, body: '' }));
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'failed');
  await expectNoViolations(page, 'failed');
});

testInFull('axe finds nothing without a GPU', async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.goto(address());
  await expectState(page, 'no-gpu');
  await expectNoViolations(page, 'no GPU');
});

/** Presses Tab until an element that matches has the focus. */
async function tabTo(page: Page, selector: string, key = 'Tab'): Promise<void> {
  for (let presses = 0; presses < 80; presses++) {
    await page.keyboard.press(key);
    if (await page.evaluate((wanted) => document.activeElement?.matches(wanted), selector)) return;
  }
  throw new Error(`${key} never comes to ${selector}.`);
}

const expectFocused = (page: Page, text: string, message: string) =>
  expect.poll(() => page.evaluate(() => document.activeElement?.textContent), { message }).toBe(text);

test('the main path works by keyboard alone, and the focus does not jump', async ({ page, engine }) => {
  engine.upTo(1);
  await page.goto(address({ ...TINY, steps: 4 }));
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
  await page.keyboard.press('Tab');
  await expect(page.locator('.skip')).toBeFocused();
  await tabTo(page, '#start');
  await page.keyboard.press('Enter');
  await expectStep(page, 1);
  await expectFocused(page, 'Pause', 'after Start');
  const announcer = page.locator('#announcer [role=status]');
  await expect(announcer).toContainText('Training.');
  await tabTo(page, '#rollouts .group');
  await page.keyboard.press('Home');
  await page.keyboard.press('Enter');
  const first = page.locator('#rollouts .group').first();
  await expect(first).toHaveAttribute('aria-pressed', 'true');
  engine.upTo(2);
  await expectStep(page, 2);
  await expect(first, 'a step later').toBeFocused();
  await tabTo(page, '#start', 'Shift+Tab');
  await page.keyboard.press('Enter');
  engine.open();
  await expectState(page, 'paused');
  await expect(announcer).toContainText('Paused.');
  await expectFocused(page, 'Resume', 'after Pause');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await expectState(page, 'done');
  await expectFocused(page, 'New run', 'after Stop');
  await expect(announcer).toContainText('The run has ended.');
});

testInFull('a term shows its explanation on hover and focus, and Escape closes it', async ({ page }) => {
  await page.clock.install();
  await page.goto(address());
  // Everything that loads automatically is there, so nothing moves the term away from the pointer, and no view waits for a timer. From then
  // on, timers of the page advance only by `runFor`.
  await expect(page.locator('#rollouts .try').first()).toBeVisible();
  await page.clock.pauseAt(Date.now() + 60_000);
  const word = page.getByRole('button', { name: 'Entropy' });
  const meaning = page.getByRole('tooltip').filter({ hasText: 'How uncertain the model is' });
  await expect(word).toHaveAccessibleDescription(/^How uncertain the model is/);
  await word.hover();
  await expect(meaning).toBeVisible();
  await meaning.hover();
  await page.clock.runFor(1000);
  await expect(meaning, 'the pointer may go onto it').toBeVisible();
  await page.mouse.move(2, 2);
  await page.clock.runFor(1000);
  await expect(meaning).toBeHidden();
  await word.focus();
  await expect(meaning).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(meaning).toBeHidden();
});

test.describe('touch', () => {
  test.use({ hasTouch: true, isMobile: true, viewport: { width: 390, height: 844 } });

  testInFull('a term shows its explanation, and touch targets are large enough', async ({ page }) => {
    await page.goto(address(TINY));
    await page.getByRole('button', { name: 'Start' }).tap();
    await expectState(page, 'done');
    await page.getByRole('button', { name: 'KL', exact: true }).tap();
    const meaning = page.getByRole('tooltip').filter({ hasText: 'How far the updates of a step' });
    await expect(meaning).toBeInViewport({ ratio: 1 });
    await page.locator('h1').tap();
    await expect(meaning).toBeHidden();
    await openDrawer(page, 'settings');
    const small = await page
      .locator('button:not(.term), input:not([type=checkbox], [type=radio]), select, summary')
      .evaluateAll((all) =>
        all.flatMap((element) => {
          const { width, height } = element.getBoundingClientRect();
          return width > 0 && (height < 44 || width < 44) ? [`${element.textContent} ${width} x ${height}`] : [];
        }),
      );
    expect(small).toEqual([]);
  });
});

/** Returns the contrast of two colours, by WCAG. */
function contrast(a: number[], b: number[]): number {
  const light = ([r, g, blue]: number[]) => {
    const [x, y, z] = [r, g, blue].map((c) =>
      c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

/** Expects a contrast of 3 to 1 of the borders of controls and the marks of the time bar. */
async function expectContrast(page: Page): Promise<void> {
  for (const colorScheme of ['light', 'dark'] as const) {
    await page.emulateMedia({ colorScheme });
    const colours = await page.evaluate(() => {
      const probe = document.createElement('i');
      document.body.append(probe);
      const of = (name: string) => {
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe)
          .color.match(/[\d.]+/g)!
          .map(Number);
      };
      const marks = [
        'edge',
        ...['generate', 'log-probs', 'update', 'sync', 'evaluate', 'rest'].map((n) => `phase-${n}`),
      ];
      return { grounds: [of('--panel'), of('--page')], marks: marks.map((name) => [name, of(`--${name}`)] as const) };
    });
    for (const [name, colour] of colours.marks)
      for (const ground of colours.grounds)
        expect(contrast(colour, ground), `${name}, ${colorScheme}`).toBeGreaterThanOrEqual(3);
  }
}
