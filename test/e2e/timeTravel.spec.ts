/** Tests an earlier step of a run: its tries, the same step trained again bit for bit, and a fork from that step. */

import { expect, type Page } from '@playwright/test';
import { expectState, expectStep, openDrawer, openPage, test, stepInFull, testInFull, TINY, fromStep } from './demo.ts';

/** Settings with which tries get different rewards, so that the weights change. */
const THREE = {
  ...TINY,
  ...{ steps: 3, n: 8, lr: 1e-3, 'data.maxResponseLength': 48, 'rollout.maxNumSeqs': 16, 'trainer.saveFreq': 1 },
};

test('a run is taken back to a step, replayed bit for bit, and continued from there', async ({
  page,
  context,
  engine,
}) => {
  engine.upTo(1);
  await openPage(page, THREE);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await expectStep(page, 1);
  await test.step('a page that was frozen, as by a closed lid, goes on', async () => {
    const devtools = await context.newCDPSession(page);
    await devtools.send('Page.setWebLifecycleState', { state: 'frozen' });
    engine.upTo(2);
    await devtools.send('Page.setWebLifecycleState', { state: 'active' });
    await expectStep(page, 2);
  });
  const slider = page.getByRole('slider', { name: 'Step' });

  await test.step('while it trains, an earlier step stays in view', async () => {
    await slider.fill('1');
    await expect(page.locator('#rollouts')).toContainText('Step 1,');
    engine.open();
    await expectState(page, 'done');
    await expect(page.locator('#rollouts')).toContainText('Step 1,');
    await expect(slider).toHaveAttribute('aria-valuetext', 'Step 1 of 3, checkpoint');
  });

  await stepInFull('by keyboard', async () => {
    await slider.focus();
    await slider.press('ArrowRight');
    await expect(slider).toHaveAttribute('aria-valuetext', 'Step 2 of 3, checkpoint');
    await expect(page.locator('#rollouts')).toContainText('Step 2,');
    await expect(slider).toBeFocused();
  });

  await test.step('after a reload, its tries come from the files', async () => {
    await changeLog(page, 3);
    engine.upTo(0, 'turn');
    await page.reload();
    await engine.held('turn'); // a turn of the session that is opened ahead of Start and used below
    await expect(slider).toBeVisible();
    await slider.fill('2');
    await expect(page.locator('#rollouts')).toContainText('Step 2,');
  });

  await test.step('a step is done again from the state before it, and is the same', async () => {
    const taken = page.waitForRequest(/repeatedChanges/); // loaded once a session was taken or closed
    await fromStep(page, /^Replay/);
    await taken;
    engine.open();
    await expect(page.locator('.replayed')).toHaveText(
      'Replay from step 1 to step 2: 1 of 1 steps bit for bit as logged.',
    );
    await expectState(page, 'done');
    await expect(page.locator('#rollouts')).toContainText('Step 2,');
  });

  await stepInFull('a log that says otherwise is told from it', async () => {
    await slider.fill('3');
    await fromStep(page, /^Replay/);
    await expect(page.locator('.replayed')).toHaveText(/^Step 3 differs from the log in actor\/grad_norm\./);
    await expectState(page, 'done');
  });

  await test.step('gone on from an earlier step, what came after stays as a run of its own', async () => {
    await openDrawer(page, 'settings');
    await page.getByLabel('Learning rate').fill('5e-4'); // for another run
    await slider.fill('2');
    await fromStep(page, /^Resume from 2/);
    await expect(page.locator('.run-list > li')).toHaveCount(2);
    await expectState(page, 'done');
    await expect(page.getByLabel('Learning rate'), 'of the run that trained').toHaveValue('0.001');
    await expect(page.locator('.run-list > li').first()).toContainText(/from step 2.*3 of 3/s);
    await expect(page.locator('.run-list > li').nth(1)).toContainText('3 of 3');
  });
});

testInFull('a fork opens the settings where they are seen, and only its own button starts', async ({ page }) => {
  await openPage(page, { ...THREE, 'trainer.saveFreq': 2, steps: 4 });
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await expectState(page, 'done');
  await page.locator('#drawer').getByRole('button', { name: 'Close' }).click();
  await expect(page.locator('#drawer')).toBeHidden();
  await expect(page.getByRole('button', { name: 'Settings' })).toBeFocused();
  const slider = page.getByRole('slider', { name: 'Step' });
  await slider.fill('3');
  await fromStep(page, /^Fork from 2/);
  await expect(page.getByRole('textbox', { name: 'Steps' })).toBeFocused();
  await expect(page.getByRole('textbox', { name: 'Steps' })).toBeInViewport();
  await expect(slider, 'the step that is forked').toHaveValue('2');
  await expect(page.getByRole('button', { name: 'Start fork' })).toBeInViewport();
  expect(await blueButtons(page)).toEqual(['Start fork']);
  await page.getByRole('textbox', { name: 'Steps' }).press('Escape');
  await expect(page.locator('#drawer')).toBeHidden();
  await expect(page.locator('.step-menu summary')).toBeFocused();
  await expect(page.getByRole('button', { name: 'New run' })).toBeVisible();

  await fromStep(page, /^Fork from 2/);
  await page.getByLabel('Learning rate').fill('2e-4');
  await page.getByRole('button', { name: 'Start fork' }).click();
  await expect(page.locator('.run-list > li')).toHaveCount(2);
  await expectState(page, 'done');
  await expect(page.locator('.run-list > li').first()).toContainText(/fork from step 2 of Run .*4 of 4/s);
  await expect(page.getByLabel('Name of the run').first()).toHaveValue('lr 2e\u22124');
  await expect(page.locator('#runs .changes').first()).toContainText('learning rate 0.001 \u2192 2e\u22124');

  await fromStep(page, /^Replay/);
  await expect(page.locator('.replayed')).toBeVisible();
  await expectState(page, 'done');
  await page.getByRole('button', { name: 'New run' }).click();
  await expectState(page, 'done');
  await expect(page.locator('.replayed'), 'of the run before').toHaveCount(0);
});

/** Returns the texts of the visible buttons that are filled with the accent colour. */
const blueButtons = (page: Page) =>
  page.locator('button:visible').evaluateAll((all) => {
    const probe = document.body.appendChild(document.createElement('i'));
    probe.style.color = 'var(--accent)';
    const { color } = getComputedStyle(probe);
    probe.remove();
    return all.filter((one) => getComputedStyle(one).backgroundColor === color).map((one) => one.textContent);
  });

/** Changes one number of a step in the log, so that the replay differs. */
const changeLog = (page: Page, step: number) =>
  page.evaluate(async (step) => {
    const runs = await (await navigator.storage.getDirectory()).getDirectoryHandle('runs');
    for await (const name of runs.keys()) {
      const handle = await (await runs.getDirectoryHandle(name)).getFileHandle('metrics.jsonl');
      const lines = (await (await handle.getFile()).text()).trim().split('\n');
      const changed = lines.map((line) => {
        const metrics = JSON.parse(line) as Record<string, number>;
        if (metrics['training/global_step'] === step) metrics['actor/grad_norm'] += 1e-9;
        return `${JSON.stringify(metrics)}\n`;
      });
      const writer = await handle.createWritable();
      await writer.write(changed.join(''));
      await writer.close();
    }
  }, step);
