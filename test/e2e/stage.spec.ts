/** Walks every transition between the page's stages that demo/state/stage.ts allows. */

import { expect, type Page } from '@playwright/test';
import { NEXT } from '../../demo/state/stage.ts';
import { address, expectState, fromStep, openDrawer, openPage, testInFull, test, TINY } from './demo.ts';
import { storedIn } from './savedLines.ts';

const button = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: true });
const expectStage = (page: Page, name: keyof typeof NEXT) =>
  expect(page.locator('body')).toHaveAttribute('data-stage', name);

/** Returns the transitions between stages that the page has made since it was opened, such as "idle to running". */
const walked = (page: Page) =>
  page.evaluate(() =>
    performance.getEntriesByType('mark').flatMap(({ name }) => /^webgrpo stage: (.*)/.exec(name)?.[1] ?? []),
  );

// The everyday tests walk these transitions too, one by one, and a forbidden one throws there.
testInFull('every transition between stages can be walked, and no other happens', async ({ page }) => {
  const seen = new Set<string>();
  const note = async () => (await walked(page)).forEach((one) => seen.add(one));
  const byLink = address({ ...TINY, 'model.path': 'org/tiny', hub: 'https://hub.example', autostart: '' });
  await page.route('https://hub.example/**', (route) => route.abort());

  await test.step('a link that asks', async () => {
    await page.goto(byLink);
    await expectStage(page, 'asking');
    await button(page, 'Watch a recorded run').click();
    await expectStage(page, 'looking');
    await button(page, 'Close').click();
    await expectStage(page, 'idle');
    await note();
    await page.reload();
    await button(page, 'Cancel').click();
    await expectStage(page, 'idle');
    await button(page, 'Watch a recorded run').click();
    await expectStage(page, 'looking');
    await note();
    await page.reload();
    await button(page, 'Load from hub.example and start').click();
    await expectState(page, 'failed');
    await expect.poll(() => storedIn(page, 'runs')).toEqual([]); // the failed run is deleted after its message
    await note();
  });

  await test.step('a run, and forks of it', async () => {
    await openPage(page, { ...TINY, 'trainer.saveFreq': 1, steps: 3 });
    await expectStage(page, 'idle');
    await button(page, 'Start').click();
    await expectState(page, 'done');
    await button(page, 'New run').click();
    await expectState(page, 'done');
    await page.getByRole('slider', { name: 'Step' }).fill('2');
    await fromStep(page, /^Fork from 2/);
    await expectStage(page, 'forking');
    await expect(page.locator('#drawer-head h2')).toHaveText(/^Fork from step 2 of Run (.*, )?\d\d:\d\d$/);
    await button(page, 'Cancel').click();
    await expectStage(page, 'looking');
    await openDrawer(page, 'runs');
    await button(page, /^Fork Run /)
      .nth(1)
      .click();
    await expect(page.locator('#drawer-head h2')).toHaveText(/^Fork from step 3 of /);
    await button(page, 'Cancel').click();
    await expectStage(page, 'looking');
    await button(page, /^Show Run /)
      .first()
      .click();
    await expect(page.locator('.offer')).toContainText('is finished');
    await button(page, /^Fork Run /)
      .first()
      .click();
    await button(page, 'Start fork').click();
    await expect(page.locator('.run-list > li')).toHaveCount(3);
    await expectStage(page, 'looking');
    await note();
    await page.reload();
    await expectStage(page, 'looking'); // at the newest run
    await note();
  });

  const allowed = Object.entries(NEXT).flatMap(([from, next]) => next.map((to) => `${from} to ${to}`));
  expect([...seen].sort()).toEqual(allowed.sort());
});
