/** Tests changing the rules during a run, like a user. */

import { expect, type Page } from '@playwright/test';
import type { TestGate } from '../scripted/gate.ts';
import {
  address,
  expectPoints,
  expectState,
  expectStep,
  onlyOnReal,
  openDrawer,
  openPage,
  test,
  testInFull,
  TINY,
  fromStep,
} from './demo.ts';
import { savedLines } from './savedLines.ts';

testInFull('typed text is kept even if effects run late, and the page responds to it', async ({ page }) => {
  // Simulates a busy device: effects that Preact delays until after a frame run only when more letters have been typed.
  await page.addInitScript(() => {
    const { setTimeout, clearTimeout, requestAnimationFrame, cancelAnimationFrame } = window;
    const held = new Map<number, () => void>();
    let [isHolding, ids] = [false, 0];
    const hold = (then: () => void) => {
      held.set(--ids, then); // no id of the browser's
      return ids;
    };
    Object.assign(window, {
      requestAnimationFrame: (then: FrameRequestCallback) =>
        isHolding ? hold(() => then(performance.now())) : requestAnimationFrame(then),
      cancelAnimationFrame: (id: number) => held.delete(id) || cancelAnimationFrame(id),
      setTimeout: (then: () => void, ms?: number) => (isHolding && ms === 35 ? hold(then) : setTimeout(then, ms)), // Preact's own delay
      clearTimeout: (id: number) => held.delete(id) || clearTimeout(id),
      holdEffects: () => void (isHolding = true),
      runEffects() {
        isHolding = false;
        for (const [id, then] of held) if (held.delete(id)) then();
      },
    });
  });
  await openPage(page, TINY);
  await page.getByRole('button', { name: 'Change reward, loss or tools during the run' }).click();
  const editor = page.getByRole('textbox', { name: 'Code of the reward' });
  const text = () =>
    editor.evaluate((of) => [...of.querySelectorAll('.cm-line')].map((line) => line.textContent).join('\n'));
  await editor.click();
  await page.keyboard.press('ControlOrMeta+A');
  let typed = '';
  for (const part of ['reward = ', '({ a })', ' => 1', 'er']) {
    await page.evaluate('holdEffects()');
    await page.keyboard.type(part);
    typed += part;
    await page.evaluate('runEffects()');
    await page.evaluate(() => new Promise((ran) => setTimeout(ran))); // Preact runs its effects in a task of their own
    expect(await text()).toBe(typed); // the cursor is at the end
  }

  const preset = page.getByLabel('Preset');
  await expect(preset).toHaveValue('');
  await expect(page.locator('#rollouts .try').first()).toBeVisible();
  await preset.selectOption('reward length');
  await expect.poll(text).toContain('return tokens / 100;');
  await expect(page.locator('.trial caption'), 'what it would have paid').toHaveText(
    /^Tries before training: mean reward [\d.]+ with this rule, [\d.]+ as trained$/,
  );
  await page.getByRole('tab', { name: 'Loss' }).click();
  await expect(page.getByRole('textbox', { name: 'Code of the loss' })).toContainText('export function loss');
  await page.getByRole('tab', { name: 'Reward' }).click();
  await expect.poll(text).toContain('return tokens / 100;');
});

/** Replaces the complete text of the editor by typing. */
async function write(page: Page, label: string, code: string): Promise<void> {
  const editor = page.getByRole('textbox', { name: label });
  await editor.click();
  await page.keyboard.press('ControlOrMeta+A');
  await page.keyboard.insertText(code);
}

/** Trains five steps: from step 3 by an own reward, whose first text has an error, and from step 5 at another learning rate. */
async function trainByOwnReward(page: Page, engine: TestGate): Promise<void> {
  engine.upTo(1);
  await openPage(page, { ...TINY, steps: 8 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expectStep(page, 1);
  await page.getByRole('button', { name: 'Change reward, loss or tools during the run' }).click();
  const panel = page.getByRole('tabpanel', { name: 'Reward' });
  const standing = panel.getByRole('status');

  await write(page, 'Code of the reward', 'export function reward({ tokens }) {\n  return 5 +;\n}\n');
  await panel.getByRole('button', { name: 'Apply' }).click();
  await expect(standing).toHaveText(/^Not applied\. Line 2: SyntaxError: unexpected token/);
  await expect(panel.locator('.cm-lintRange-error')).toHaveText(';');
  await expect(panel.locator('.cm-lint-marker-error')).toHaveCount(1);

  await write(
    page,
    'Code of the reward',
    'export function reward({ text }) {\n  return 5 + (text.length % 9) / 1000;\n}\n',
  );
  await panel.getByRole('button', { name: 'Apply' }).click();
  await expect(panel.locator('.cm-lintRange-error')).toHaveCount(0);
  await expect(panel.getByRole('table')).toContainText(/mean reward 5\.0\d* with this rule/);
  engine.upTo(2);
  await expect(standing).toHaveText('Applied at step 3: custom reward.');
  engine.upTo(3);
  await expectStep(page, 3);
  await expect(page.locator('#rollouts')).toContainText(/reward 5\.0/, { useInnerText: true });
  await expect(page.getByRole('list', { name: 'Changes' })).toContainText('Step 3 Reward replaced by "custom reward"');

  // Expects that Tab leaves the editor, and that undo restores the old text.
  await page.getByRole('textbox', { name: 'Code of the reward' }).click();
  await page.keyboard.press('ControlOrMeta+Z');
  await expect(panel.locator('.cm-content')).toContainText('return 5 +;');
  await page.keyboard.press('Tab');
  await expect(panel.getByRole('button', { name: 'Apply' })).toBeFocused();

  await page.getByRole('tab', { name: 'Settings' }).click();
  const settings = page.getByRole('tabpanel', { name: 'Settings' });
  await settings.getByLabel('Learning rate').fill('-1');
  await settings.getByRole('button', { name: 'Apply' }).click();
  await expect(settings.getByRole('status')).toHaveText(/^"actor\.optim\.lr" is -1; allowed: /);
  await settings.getByLabel('Learning rate').fill('0.0001');
  await settings.getByRole('button', { name: 'Apply' }).click();
  await expect(settings.getByRole('status')).toHaveText('Applies at the next step.');
  engine.upTo(4);
  await expect(page.getByRole('list', { name: 'Changes' })).toContainText('Step 5 Learning rate 0.0003 \u2192 0.0001');
  await expect(settings.getByLabel('KL coefficient')).toBeDisabled();
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  engine.open();
  await expectState(page, 'done');
  await expectPoints(page, 'reward', 5);
}

test('an error in a reward is marked at its line; corrected, the reward applies from the next step; settings change too', async ({
  page,
  engine,
}) => {
  await trainByOwnReward(page, engine);
  for (const [rate, at] of [
    [undefined, 1e-4],
    ['3e-4', 3e-4], // as before the change
  ] as const) {
    await page.getByRole('slider', { name: 'Step', exact: true }).fill('5');
    await fromStep(page, /^Fork from 5/);
    const field = page.locator('#settings').getByLabel('Learning rate');
    await expect(field, 'the rate in force').toHaveValue('0.0001');
    if (rate !== undefined) await field.fill(rate);
    await page.getByRole('button', { name: 'Start fork' }).click();
    await expect(page.locator('.run-list > li')).toHaveCount(rate === undefined ? 2 : 3);
    await expectState(page, 'done');
    const rates = (await savedLines(page)).slice(-4).map((line) => line['actor/lr']);
    expect(rates).toEqual([1e-4, at, at, at]);
  }
});

testInFull('a run stores its changes: replayed, resumed and opened from a file', async ({ page, engine }) => {
  await trainByOwnReward(page, engine);
  const changed = page.getByRole('list', { name: 'Changes' });
  await test.step('done again, steps go by what came in at them, and come out the same', async () => {
    await page.getByRole('slider', { name: 'Step' }).fill('5');
    await fromStep(page, /^Replay/);
    await expect(page.locator('.replayed')).toHaveText(/(\d+) of \1 steps bit for bit as logged\.$/);
    await expectState(page, 'done');
  });

  await test.step('reloaded and gone on with, it goes by them still', async () => {
    engine.upTo(5);
    await page.reload();
    await page.locator('.offer').getByRole('button', { name: 'Resume' }).click();
    await goesByTheReward(page, engine, 6);
    await expect(changed).toContainText('Step 5 Learning rate 0.0003 \u2192 0.0001');
  });

  await test.step('from a file, rules are somebody else\u2019s: they run after a question', async () => {
    await openDrawer(page, 'runs');
    await page.locator('#runs .save summary').first().click();
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Run (.zip, opens here and in the command line)' }).click(),
    ]);
    const file = test.info().outputPath('run.zip');
    await download.saveAs(file);
    await page.getByLabel('Open .zip').setInputFiles(file);
    await page.getByRole('button', { name: 'Resume gsm8k-tool, loaded' }).click();
    await expect(page.locator('.offer')).toContainText('This run contains custom rules (reward: custom reward)');
    await expectState(page, 'loading');
    await page.getByRole('button', { name: 'Run its rules' }).click();
    await goesByTheReward(page, engine, 7);
    await page.getByLabel('Open .zip').setInputFiles(file);
    await expect(page.locator('.run-list > li')).toHaveCount(3);
    await page.getByRole('button', { name: 'Resume gsm8k-tool, loaded' }).first().click();
    await page.getByRole('button', { name: 'Resume without its rules' }).click();
    await expect(changed).toContainText("Reward replaced by the task's own reward");
    await expect(page.locator('#rollouts')).toContainText(/reward [01]\.00/, { useInnerText: true });
  });
});

/** Expects that `step` uses the reward that the test wrote, and stops the run during that step. */
async function goesByTheReward(page: Page, engine: TestGate, step: number): Promise<void> {
  await engine.reached(step);
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  engine.upTo(step);
  await expectState(page, 'done');
  await expectStep(page, step);
  await expect(page.locator('#rollouts')).toContainText(/reward 5\.0/, { useInnerText: true });
  const changed = page.getByRole('list', { name: 'Changes' });
  await expect(changed).toContainText('Step 3 Reward replaced by "custom reward"');
}

const QUICK = { ...TINY, steps: 40, 'data.valMaxSamples': 64, 'trainer.testFreq': 20 };

testInFull(
  '"Break it" asks for a guess, applies at once, measures every 5 steps, and is undone',
  async ({ page, engine }) => {
    engine.upTo(1);
    await openPage(page, QUICK);
    await page.getByRole('button', { name: 'Start' }).click();
    await engine.reached(2);
    await expectStep(page, 1);
    const broken = page.locator('#break');
    await broken.getByRole('button', { name: 'reward guessing' }).click();
    await expect(broken).toContainText('What will happen to share solved?');
    await broken.getByRole('button', { name: 'up' }).click();
    const banner = page.locator('.notice.replaced');
    await expect(banner).toContainText('Reward changed from the next step: reward guessing.');
    engine.upTo(6);
    await expectStep(page, 6);
    await expect(banner).toContainText('Reward changed at step 3: reward guessing.');
    await expect(broken).toContainText('the first comparison takes a few steps');
    engine.upTo(7); // the step before the change and every fifth after it
    const said = /^You guessed up\. It (fell from|rose from|hardly moved:) [01]\.\d\d to [01]\.\d\d by step 7\.$/;
    await expect(broken.locator('p')).toHaveText(said);
    await expect(page.locator('#headline')).toContainText('Share solved, first 32 held-out problems, step 7');
    await expectPoints(page, 'pass', 2);
    await banner.getByRole('button', { name: 'Undo' }).click();
    await expect(banner).toHaveCount(0);
    await expect(broken.getByRole('button', { name: 'reward length' })).toBeVisible();
    engine.upTo(12);
    await expectStep(page, 12);
    await expectPoints(page, 'pass', 2);
    await broken.getByRole('button', { name: 'own code...' }).click();
    await expect(page.getByRole('textbox', { name: 'Code of the reward' })).toBeVisible();
  },
);

testInFull('the lesson "cheat" is worked through: each screen checks what was done', async ({ page, engine }) => {
  engine.upTo(4);
  await page.goto(`${address(QUICK)}&lesson=cheat`);
  const lesson = page.getByRole('complementary', { name: 'Lesson' });
  const [check, next] = [lesson.getByRole('status'), lesson.getByRole('button', { name: 'Next' })];
  const step = async (title: string, waits: string | RegExp, act: () => Promise<void>) => {
    await expect(lesson.getByRole('heading')).toHaveText(title);
    await expect(check).toHaveText(waits);
    await act();
    await expect(check).toHaveText(/^Done\./);
    if (title !== 'It did what was paid') await next.click();
  };
  await step('A model that learns', 'Waits for step 5.', async () => {
    await page.getByRole('button', { name: 'Start' }).click();
    await expectStep(page, 4);
    await expect(next).toHaveAttribute('aria-disabled', 'true');
    engine.upTo(5);
  });
  await step('What is paid', 'Waits for a chosen problem.', () => page.locator('#rollouts .group').first().click());
  await step('Your prediction', 'Waits for your guess.', async () => {
    await page.getByRole('button', { name: 'reward guessing' }).click();
    await page.getByRole('group', { name: 'Your guess' }).getByRole('button', { name: 'down' }).click();
  });
  await step('Two curves part', /^Waits for share solved below 0\.2/, async () => {
    await page.getByRole('button', { name: 'Back to live' }).click();
    engine.open();
  });
  await step('It did what was paid', "Waits for the task's own reward.", () =>
    page.getByRole('button', { name: 'Undo' }).click(),
  );
  await expectState(page, 'done');
  await expect(page, 'the lesson stays in the address').toHaveURL(/lesson=cheat/);
  await page.goto('/?lesson=none');
  await expect(page.locator('.notice.error'), 'the saved run does not replace it').toContainText(
    'Unknown lesson "none". Known: cheat.',
  );
});

/** Returns the newest value of a curve, and its change since the first. */
async function newest(page: Page, chart: string): Promise<{ value: number; change: number }> {
  const figure = page.locator(`figure[data-chart="${chart}"]`);
  const numberIn = async (part: string) =>
    Number.parseFloat((await figure.locator(part).innerText()).replace('\u2212', '-'));
  return { value: await numberIn('.value'), change: await numberIn('.change') };
}

for (const preset of ['reward tool calls', 'reward length', 'reward guessing'])
  testInFull(`"${preset}" is cheated: the reward rises, and pass@1 falls`, async ({ page }) => {
    onlyOnReal();
    await openPage(page, { steps: 40, 'trainer.testFreq': 0, 'data.valMaxSamples': 128 });
    await page.getByRole('button', { name: 'Start' }).click();
    await page.getByRole('button', { name: 'Change reward, loss or tools during the run' }).click();
    const panel = page.getByRole('tabpanel', { name: 'Reward' });
    await panel.getByLabel('Preset').selectOption(preset);
    await panel.getByRole('button', { name: 'Apply' }).click();
    await expect(panel.getByRole('status')).toHaveText(/^Applied at step \d+/);
    await expectState(page, 'done');
    const [reward, pass] = [await newest(page, 'reward'), await newest(page, 'pass')];
    console.log(preset, JSON.stringify({ reward, pass }));
    expect(reward.change).toBeGreaterThan(0.1);
    expect(pass.change).toBeLessThan(-0.1);
  });
