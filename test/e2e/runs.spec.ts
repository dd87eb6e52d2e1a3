/** Tests two overlaid runs: their differences, both curves in every chart, a fork, and the curves of both branches. */

import { expect, type Page } from '@playwright/test';
import {
  expectInk,
  expectPoints,
  expectState,
  fromStep,
  inkOf,
  isFull,
  noticesOf,
  openDrawer,
  openPage,
  test,
  stepInFull,
  TINY,
} from './demo.ts';

const THREE = { ...TINY, steps: 3, 'trainer.saveFreq': 1 };

test('a second run is shown next to the first, and forked', async ({ page }) => {
  await openPage(page, THREE);
  await start(page);
  await expect(page.locator('#runs')).toContainText('first run');
  await expectPoints(page, 'reward', 3);
  await expect(page.locator('.machine p')).toHaveText(/^webgrpo \S+ on \S.*: .* s per step/);

  await page.getByLabel('Learning rate').fill('2e-4');
  await openMoreSettings(page);
  await page.getByLabel('Seed', { exact: true }).fill('7');
  await start(page, 'New run');
  const rows = page.locator('.run-list > li');
  await expect(rows).toHaveCount(2);
  await expect(rows.first().locator('.changes')).toHaveText('learning rate 3e\u22124 \u2192 2e\u22124seed 1 \u2192 7');

  await test.step('its name is made of what it changes, or is what one gives it', async () => {
    await openDrawer(page, 'runs');
    await expect(rows.first().getByLabel('Name of the run')).toHaveValue('lr 2e\u22124, seed 7');
    await rows.nth(1).getByLabel('Name of the run').fill('Calm');
    await rows.nth(1).getByLabel('Name of the run').press('Enter');
    await expect(page.getByRole('button', { name: 'Show Calm' })).toBeVisible();
  });

  await stepInFull('asked why it does not learn: what webgrpo doctor prints', async () => {
    await page.getByLabel('Why Calm does not learn').click();
    await expect(rows.nth(1).locator('.diagnosis')).toHaveText(/\(\w+-\w+\)\.|^Nothing found in 3 steps\./);
  });

  await test.step('laid over the run shown: a line of its own, in the legend and in the tables', async () => {
    await expectInk(page, 'length');
    const alone = await inkOf(page, 'length');
    await page.getByRole('checkbox', { name: 'Compare the curves of Calm' }).check();
    await expect(page.locator('.run-legend li')).toHaveText(['lr 2e\u22124, seed 7', 'Calm']);
    await expectInk(page, 'length', alone);
    const chart = page.locator('figure[data-chart="length"]');
    await chart.getByText('Values').click();
    await expect(chart.locator('th')).toHaveText(['step', 'mean', 'p10', 'p90', 'Calm']);
    await expect(chart.locator('tbody tr')).toHaveCount(3);
  });

  await stepInFull('opened values do not stretch the chart beside them', async () => {
    const gap = () =>
      page.locator('figure[data-chart="pass"]').evaluate((figure) => {
        const top = figure.querySelector('.values')!.getBoundingClientRect().top;
        return top - figure.getBoundingClientRect().top;
      });
    const before = await gap();
    await page.locator('figure[data-chart="reward"]').getByText('Values').click();
    expect(await gap()).toBe(before);
  });

  await stepInFull('the pointer is shown in all curves, over steps or seconds', async () => {
    const at = page.locator('figure[data-chart="length"] .change');
    const plot = page.locator('figure[data-chart="entropy"] .plot');
    await plot.hover();
    await expect(at).toHaveText(/^at step \d$/);
    await page.getByRole('group', { name: 'Axis of the curves' }).getByRole('button', { name: 'seconds' }).click();
    await plot.hover();
    await expect(at).toHaveText(/^at [\d.]+ s$/);
    await page.getByRole('button', { name: 'steps', exact: true }).click();
  });

  await test.step('arrow keys read the values', async () => {
    const plot = page.getByRole('slider', { name: 'Response length' });
    await plot.focus();
    await plot.press('Home');
    await expect(plot).toHaveAttribute('aria-valuetext', /^step 1, mean [\d.]+, .*Calm [\d.]+$/);
    await plot.press('ArrowRight');
    await expect(plot).toHaveAttribute('aria-valuenow', '2');
  });

  await stepInFull('forked at a kept step under another setting, both branches are in the charts', async () => {
    await page.getByRole('slider', { name: 'Step' }).fill('2');
    await fromStep(page, /^Fork from 2/);
    await openMoreSettings(page);
    await page.getByLabel('Loss', { exact: true }).selectOption('cispo');
    const notices = await noticesOf(page);
    const twice = (button: SVGElement | HTMLElement) =>
      ['click', 'click'].forEach(() => (button as HTMLElement).click());
    await page.getByRole('button', { name: 'Start fork' }).evaluate(twice);
    await expect.poll(notices).toMatch(/Resumed from step 2\./);
    await expectState(page, 'done');
    await expect(rows).toHaveCount(3);
    await expect(rows.first()).toContainText(/fork from step 2 of lr 2e\u22124, seed 7/);
    await expect(rows.first().locator('.changes')).toHaveText('loss vanilla \u2192 cispo');
    await expect(page.locator('.run-legend li')).toHaveCount(3);
    await expectPoints(page, 'reward', 3);
    const before = page.locator('figure[data-chart="length"] tbody tr').nth(1).locator('td');
    await expect(async () => {
      const values = await before.allInnerTexts();
      expect(values[1], 'the same up to the fork').toBe(values.at(-1));
    }).toPass();
  });

  await stepInFull('on a phone, nothing lies beside the screen', async () => {
    await page.setViewportSize({ width: 360, height: 800 });
    const wide = () =>
      page.evaluate(() =>
        [...document.querySelectorAll('#runs *, #charts *, #more-charts *, #timeline *')]
          .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
          .filter((element) => !element.closest('.values-table, svg, .heard'))
          .map((element) => `${element.tagName}.${element.className}`),
      );
    await expect.poll(wide).toEqual([]); // charts follow a new size in a later frame
    await page.setViewportSize({ width: 1280, height: 720 });
  });

  await test.step('deleted after a question, and gone', async () => {
    await page.getByRole('button', { name: 'Delete Calm' }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await expect(rows).toHaveCount(isFull ? 2 : 1);
    await page.reload();
    await openDrawer(page, 'runs');
    await expect(rows).toHaveCount(isFull ? 2 : 1);
    await expect(page.getByRole('button', { name: 'Show Calm' })).toHaveCount(0);
  });
});

async function start(page: Page, name = 'Start'): Promise<void> {
  await page.getByRole('button', { name, exact: true }).click();
  await expectState(page, 'done');
}

async function openMoreSettings(page: Page): Promise<void> {
  const more = page.locator('.more-settings');
  if ((await more.getAttribute('open')) === null) await more.getByText('More settings').click();
}
