/** Tests that the page shows progress from its first seconds, and that its statements about the end of a run are true. */

import { expect, type Page } from '@playwright/test';
import type { TestGate } from '../scripted/gate.ts';
import { expectPoints, expectState, expectStep, openPage, stepInFull, test, testInFull, TINY } from './demo.ts';
import { downloadedLines, type Line, untimed } from './savedLines.ts';

const SMALL = { ...TINY, n: 4, lr: 1e-3, 'data.maxResponseLength': 64, 'data.valMaxSamples': 40 };

const tries = (page: Page) => page.locator('#rollouts .try');
const start = (page: Page) => page.getByRole('button', { name: 'Start', exact: true }).click();

const lines = async (page: Page) => untimed(await downloadedLines(page));

/** Trains a run whose session is opened ahead, during the evaluation of the untrained model. Returns its metrics. */
async function trainWarm(page: Page, engine: TestGate): Promise<Line[]> {
  let fetched = 0;
  let isFetched = () => {};
  const weights = new Promise<void>((resolve) => (isFetched = resolve));
  page.on('request', (request) => {
    if (!/model[\w-]*\.safetensors$/.test(request.url())) return; // vite's own modules have other names
    fetched++;
    isFetched();
  });
  await page.route(/\/config[\w-]*\.json$/, (route) => weights.then(() => route.continue())); // the weights do not wait for it
  await openPage(page, { ...SMALL, 'trainer.valBeforeTrain': true });
  await expect(tries(page).first()).toBeVisible();
  await expectPoints(page, 'reward', 0);
  await expect(page.locator('body')).toHaveAttribute('data-state', 'idle');
  expect(page.workers()).toHaveLength(1);

  engine.upTo(0);
  await start(page);
  await engine.reached(1);
  engine.upTo(0, 'turn');
  engine.upTo(1);
  await expect(page.locator('#status-now')).toContainText(/Evaluating the untrained model, \d+ of 40/);
  await expect(page).toHaveTitle(/^\d+%/);
  engine.open();
  await expectState(page, 'done');
  await expect(page.locator('#status-left')).toHaveText('\u2013');
  await expect(page).toHaveTitle('webgrpo');
  expect(fetched, 'requests of model.safetensors').toBe(1);
  return lines(page);
}

test('before Start the untrained model tries; the model is fetched once, and its evaluation is counted', async ({
  page,
  engine,
}) => void (await trainWarm(page, engine)));

testInFull("the untrained model's tries before Start do not change a run", async ({ page, engine }) => {
  const warm = await trainWarm(page, engine);
  // The evaluation comes first and in one piece, because stopWhen needs it. No session is opened ahead, because the page is made to be
  // never idle.
  await page.addInitScript(() => {
    window.requestIdleCallback = () => 0;
  });
  const neverReached = {
    'trainer.testFreq': 100,
    'trainer.stopWhen.metric': 'val-core/gsm8k-tool/acc/mean@1',
    'trainer.stopWhen.atLeast': 2,
  };
  await openPage(page, { ...SMALL, 'trainer.valBeforeTrain': true, ...neverReached });
  await start(page);
  await expectState(page, 'done');
  expect(warm).toEqual(await lines(page));
});

test('after Stop the final weights are evaluated, with a count', async ({ page, engine }) => {
  engine.upTo(1);
  await openPage(page, { ...SMALL, steps: 5, 'data.valMaxSamples': 64 });
  const stopAfterStep = async (step: number) => {
    await engine.reached(step);
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    engine.upTo(0, 'turn');
    engine.upTo(step);
    await expect(page.locator('#status-now')).toHaveText(/^Evaluating, \d+ of 64, then stops$/);
  };
  await start(page);
  await stopAfterStep(2);
  engine.upTo(Infinity, 'turn');
  await expectState(page, 'done');
  await expectStep(page, 2);
  const last = (await lines(page)).at(-1);
  expect(last?.['training/global_step']).toBe(2);
  expect(last?.['val-core/gsm8k-tool/acc/mean@1']).toBeGreaterThanOrEqual(0);
  await expectPoints(page, 'pass', 1);
  await expect(page.locator('#status-left')).toHaveText('\u2013');

  await stepInFull('a second Stop skips the evaluation', async () => {
    engine.upTo(2);
    await page.getByRole('button', { name: 'New run' }).click();
    await stopAfterStep(3);
    await page.getByRole('button', { name: 'Skip evaluation' }).click();
    await expectState(page, 'done');
    await expect(page.getByText('Stopped after 3 steps.')).toBeVisible();
    await expectPoints(page, 'pass', 0);
  });
});

testInFull('a GPU that is lost while the page is idle is not used for training', async ({ page, engine }) => {
  const lose = async () => {
    const [worker] = page.workers();
    await worker.evaluate('scriptedEngine.lose()');
  };
  engine.open();
  await openPage(page, SMALL);
  await expect(tries(page).first()).toBeVisible();
  await lose();
  await expect.poll(() => page.workers().length).toBe(0);
  await expect(page.locator('.notice.error')).toHaveCount(0);
  await start(page);
  await expectState(page, 'done');
  await lose();
  await expect(page.getByText('The GPU was lost. Press Start to open it again.')).toBeVisible();
  await expect.poll(() => page.workers().length).toBe(0);
});
