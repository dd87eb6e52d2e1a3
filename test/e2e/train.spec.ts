/** Tests the main purpose of the page: the reward rises, curves and conversations show it, and the page stays responsive. */

import { expect, type Page } from '@playwright/test';
import { expectPoints, expectInk, expectState, isFull, openPage, testInFull, test, TINY, waitForStep } from './demo.ts';
import { expectShortTasks, watchMainThread } from './mainThread.ts';
import { downloadedLines, type Line } from './savedLines.ts';

/** Settings of a short run at four times the usual learning rate. The same seed on the same adapter always gives the same curve. */
const STEPS = isFull ? 6 : 3;
const PROBLEMS = isFull ? 16 : 8;
const QUICK = {
  ...{ steps: STEPS, lr: 1e-3, 'trainer.testFreq': 0 },
  ...{ 'data.trainBatchSize': PROBLEMS, 'data.valMaxSamples': 2 * PROBLEMS },
};

test('trains in the page until the reward rises', async ({ page, browser }) => {
  await openPage(page, QUICK);
  // Wait until the page has done everything that it does before Start: loading, and the untrained model's tries.
  await expect(page.locator('.try').first()).toBeVisible();
  const stopWatching = isFull ? await watchMainThread(browser, page) : undefined;
  await page.getByRole('button', { name: 'Start' }).click();
  if (stopWatching) {
    // Start, evaluation and two steps cover everything that the page does. A trace of all steps would not fit into memory.
    await waitForStep(page, 2);
    const busy = await stopWatching();
    expect(busy.tasks, 'tasks in the trace').toBeGreaterThan(100);
    expectShortTasks(busy, 'training');
  }
  await expectState(page, 'done');

  const metrics = await downloadedLines(page);
  const rewards = metrics.flatMap((line) => line['critic/score/mean'] ?? []);
  expect(rewards).toHaveLength(STEPS);
  expectLearned(metrics, rewards);
  expect(Math.max(...metrics.map((line) => line['training/rollout_probs_diff_max'] ?? 0))).toBeLessThanOrEqual(1e-6);

  await expectCurves(page);
  await expectConversations(page);
});

testInFull('the limits of this GPU predict a step, in the sentence about this machine', async ({ page }) => {
  await openPage(page, { ...TINY, steps: 3 });
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  await page.getByRole('button', { name: "Predict from this GPU's limits" }).click();
  const said = page.locator('.machine p');
  await expect(said).toHaveText(
    /; predicted from the limits of this GPU \(\S+ GFLOP\/s, \S+ GB\/s, \S+ \u00b5s per dispatch\): \S+ s \(.*\); the step took \S+ times as long; /,
  );
  console.log(await said.innerText());
  await expect(page.locator('.machine [role=status]')).toHaveText('Measured.');
});

function expectLearned(metrics: Line[], rewards: number[]): void {
  const half = Math.floor(STEPS / 2);
  expect(mean(rewards.slice(half)), `rewards ${rewards.join(', ')}`).toBeGreaterThan(mean(rewards.slice(0, half)));
  const [before, after] = [metrics[0], metrics[STEPS]].map((line) => line['val-core/gsm8k-tool/acc/greedy']);
  expect(after, `greedy accuracy was ${before}`).toBeGreaterThan(before + 0.1);
}

/** Expects that every curve has its points and is drawn, with evaluations before and after the run. */
async function expectCurves(page: Page): Promise<void> {
  for (const chart of ['reward', 'entropy', 'kl', 'grad', 'length']) await expectPoints(page, chart, STEPS);
  await expectPoints(page, 'pass', 2);
  for (const chart of ['reward', 'pass', 'entropy', 'kl', 'grad', 'length']) await expectInk(page, chart);
}

/** Expects that a problem is shown, its tries with tool calls and results, reward and advantage, and that another problem can be picked. */
async function expectConversations(page: Page): Promise<void> {
  const rollouts = page.locator('#rollouts');
  await expect(rollouts.locator('.question')).toContainText('?');
  await expect(rollouts.locator('.try')).toHaveCount(2);
  await expect(rollouts.locator('.call').first()).toHaveText(/^calculator\(.+\)$/);
  await expect(rollouts.locator('.tool').first()).toContainText('calculator result');
  await expect(rollouts.locator('.try').first()).toContainText(/reward\s*1\.00/);
  await expect(rollouts.locator('.try').first()).toContainText(/advantage\s*\+/);
  await rollouts.getByRole('button', { name: 'Show all 8 tries' }).click();
  await expect(rollouts.locator('.try')).toHaveCount(8);
  const groups = rollouts.locator('.group');
  await expect(groups).toHaveCount(PROBLEMS);
  await groups.last().click();
  await expect(groups.last()).toHaveAttribute('aria-pressed', 'true');
  await expect(rollouts).toContainText(`Step ${STEPS}, problem ${PROBLEMS} of ${PROBLEMS}`);
}

const mean = (values: number[]) => values.reduce((a, b) => a + b, 0) / values.length;
