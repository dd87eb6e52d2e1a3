/** Tests the layout on a desktop and on a phone, and that it does not shift while the page works. */

import { expect, type Page } from '@playwright/test';
import type { TestGate } from '../scripted/gate.ts';
import {
  address,
  expectKept,
  expectNoSideScroll,
  isFull,
  expectPoints,
  expectState,
  openDrawer,
  stepInFull,
  testIf,
  testInFull,
  TINY,
} from './demo.ts';

const boxOf = async (page: Page, selector: string) => (await page.locator(selector).first().boundingBox())!;

/** Starts to sum layout shifts, as the browser counts them. */
const watchShifts = (page: Page) =>
  page.addInitScript(() => {
    const seen = { sum: 0 };
    Object.assign(globalThis, { shifts: seen });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as (PerformanceEntry & { value: number; hadRecentInput: boolean })[])
        if (!entry.hadRecentInput) seen.sum += entry.value;
    }).observe({ type: 'layout-shift', buffered: true });
  });
const shifts = (page: Page) => page.evaluate<number>('shifts.sum');

async function load(page: Page): Promise<void> {
  await watchShifts(page);
  await page.goto(address({ ...TINY, steps: 4 }));
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
  await expect(page.locator('#rollouts .try').first()).toBeVisible(); // the last content that appears automatically
}

/** Runs two steps, and stops the engine during the third. */
async function runTwoSteps(page: Page, engine: TestGate): Promise<void> {
  engine.upTo(2);
  await page.getByRole('button', { name: 'Start' }).click();
  await expectPoints(page, 'reward', 2);
}

testInFull('on a desktop the tries are to the left of the curves, above the fold', async ({ page, engine }) => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await load(page);
  expect(await shifts(page), 'layout shift while loading').toBeLessThanOrEqual(0.03);
  const [tries, curves, start] = [
    await boxOf(page, '#rollouts'),
    await boxOf(page, '#charts'),
    await boxOf(page, '#start'),
  ];
  expect(tries.y).toBeLessThan(600);
  expect(tries.x + tries.width).toBeLessThanOrEqual(curves.x);
  expect(start.y).toBeLessThan(450);
  await runTwoSteps(page, engine);
  await page.getByRole('button', { name: 'Pause' }).click();
  await expect(page.locator('#status-now'), 'a text that must not wrap').toContainText('then pauses');
  expect((await boxOf(page, '.top')).height).toBe(48);
  await expect(page.getByRole('radio'), 'cards, once a run was started').toHaveCount(0);
  await expect(page.getByRole('combobox', { name: 'Task' })).toHaveValue('gsm8k-tool');
  await page.setViewportSize({ width: 1920, height: 1080 });
  const right = () =>
    page.evaluate(() =>
      Math.max(...[...document.querySelectorAll('main > *')].map((e) => e.getBoundingClientRect().right)),
    );
  await expect.poll(right, { message: 'the whole width is used' }).toBeGreaterThan(1850);
});

/** Tries in one frame: the shown problem, true if the sentence about it is there, and the place of that sentence. */
interface Frame {
  shown: string;
  says: boolean;
  y: number;
}

/** Starts to record the frames. */
const watchTries = (page: Page) =>
  page.evaluate(() => {
    const frames: Frame[] = [];
    Object.assign(globalThis, { frames });
    const look = () => {
      const [label, question, says] = ['.picker .label', '.question', '.teaches'].map((of) =>
        document.querySelector<HTMLElement>(`#rollouts ${of}`)!,
      );
      frames.push({
        shown: `${label.innerText}: ${question.innerText}`,
        says: !/Scoring|are scored/.test(says.innerText),
        y: Math.round(says.getBoundingClientRect().y + scrollY),
      });
      requestAnimationFrame(look);
    };
    look();
  });

/** Window sizes of a desktop, a laptop and a phone. */
const SIZES = [
  { width: 1440, height: 900 },
  { width: 1280, height: 720 },
  { width: 390, height: 844 },
];
/** Window width that the everyday tests check; the others are checked in --full. */
const EVERYDAY = 1280;

for (const size of SIZES)
  testIf(size.width === EVERYDAY)(
    `training at ${size.width} px: the shown problem changes only when a step is complete, and nothing moves`,
    async ({ page, engine }) => {
      await page.setViewportSize(size);
      const settings = { ...TINY, steps: 5, n: 8, 'data.trainBatchSize': 16, 'actor.ppoMiniBatchSize': 16 };
      await watchShifts(page);
      await page.goto(address({ ...settings, 'data.maxResponseLength': 160, 'trainer.saveFreq': 1 }));
      await expect(page.locator('#rollouts .try').first()).toBeVisible();
      engine.upTo(0);
      await page.getByRole('button', { name: 'Start' }).click();
      await engine.endStep(1);
      await expect(page.locator('#rollouts .label')).toContainText('Step 1,');
      const look = page.getByRole('button', { name: 'Inspect tokens' }).first();
      await look.focus();
      await page.evaluate('shifts.sum = 0');
      await watchTries(page);
      for (const step of isFull ? [2, 3, 4] : [2, 3]) {
        await engine.endStep(step);
        await expect(page.locator('#rollouts .picker .label')).toContainText(`Step ${step},`);
      }
      const frames = await page.evaluate<Frame[]>('frames');
      expect(new Set(frames.map(({ shown }) => shown)).size, 'problems shown in steps 1 to 4').toBeLessThanOrEqual(4);
      const places = new Set(frames.map(({ y }) => y));
      console.log(`layout shift in three steps ${await shifts(page)}, ${frames.length} frames`);
      expect(new Set(frames.map(({ says }) => says)), 'the sentence is shown in every frame').toEqual(new Set([true]));
      expect(places.size, 'places of the sentence').toBe(1);
      expect(await shifts(page)).toBeLessThanOrEqual(0.02);
      await expect(look, 'the focus stays on the button').toBeFocused();

      await stepInFull('a visitor who returns sees the run in its place, from the top', async () => {
        await expectKept(page, 4);
        page.on('dialog', (dialog) => void dialog.accept());
        await page.reload();
        await expect(page.locator('.offer').getByRole('button', { name: 'Resume' })).toBeInViewport({ ratio: 1 });
        await expect(page.locator('#rollouts .try').first()).toBeVisible();
        await expect(page.locator('.step-menu')).toBeVisible();
        expect(await shifts(page), 'layout shift').toBeLessThanOrEqual(0.02);
        expect(await page.evaluate(() => scrollY), 'scrolled by').toBe(0);
      });
    },
  );

for (const width of [360, 390])
  testIf(width === 360)(
    `on a phone of ${width} px there is one column, the result and a curve first, buttons in reach`,
    async ({ page, engine }) => {
      await page.setViewportSize({ width, height: 780 });
      await load(page);
      expect(await shifts(page), 'layout shift while loading').toBeLessThanOrEqual(0.03);
      const start = await boxOf(page, '#start');
      expect(start.y + start.height).toBeLessThanOrEqual(780);
      await expect(page.locator('#charts figure').first(), 'empty curves before a run').toBeHidden();
      await runTwoSteps(page, engine);
      const [headline, curve, tries] = [
        await boxOf(page, '#headline'),
        await boxOf(page, '[data-chart="reward"]'),
        await boxOf(page, '#rollouts'),
      ];
      expect(headline.y + headline.height).toBeLessThanOrEqual(curve.y);
      expect(curve.y + curve.height, 'the result and a curve are on the first screen').toBeLessThan(780 - 61);
      expect(curve.y + curve.height).toBeLessThanOrEqual(tries.y);
      const isCut = await page.locator('#status-now').evaluate((of) => of.scrollWidth > of.clientWidth);
      expect(isCut, 'the status is cut').toBe(false);
      await expectNoSideScroll(page);
    },
  );

/**
 * Returns a list of elements that are cut off: text with an ellipsis, a headline or status taller than its space, elements beyond the right
 * edge, problems below the edge of a picker that cannot scroll. Runs in the page.
 */
function cutOff({ mayScroll }: { mayScroll: boolean }): string[] {
  const all = (selector: string) =>
    [...document.querySelectorAll<HTMLElement>(selector)].filter((one) => one.checkVisibility());
  const parts = ['.top', '.tries-panel', '#headline', '#break', '.chart', '#timeline', '#drawer-head'];
  const short = all(parts.map((part) => `${part} *`).join()).filter(
    (one) => getComputedStyle(one).textOverflow === 'ellipsis' && one.scrollWidth > one.clientWidth,
  );
  const tall = all('.headline, .status').filter((one) => one.scrollHeight > one.clientHeight + 1);
  const wide = all('.top, .top *, .headline *, .break-it *').filter(
    (one) => one.getBoundingClientRect().right > innerWidth + 0.5,
  );
  const picker = all('.groups').at(0);
  const bottom = picker?.getBoundingClientRect().bottom ?? 0;
  const scrolls = mayScroll && picker && ['auto', 'scroll'].includes(getComputedStyle(picker).overflowY);
  const below = scrolls ? [] : all('.group').filter((one) => one.getBoundingClientRect().bottom > bottom);
  return [...short, ...tall, ...wide, ...below].map((one) => `${one.id || one.className}: ${one.innerText}`);
}

for (const { width, height } of SIZES)
  testInFull(
    `nothing is cut at ${width} x ${height}: idle, running, pausing, done, with the drawer open`,
    async ({ page, engine }) => {
      await page.setViewportSize({ width, height });
      const settings = { steps: 3, n: 8, 'data.trainBatchSize': 16, 'actor.ppoMiniBatchSize': 16 };
      await page.goto(address({ ...TINY, ...settings, 'trainer.valBeforeTrain': true, 'data.valMaxSamples': 256 }));
      const expectWhole = async (state: string) =>
        expect(await page.evaluate(cutOff, { mayScroll: width < 640 }), `cut, ${state}`).toEqual([]);
      await expect(page.locator('#rollouts .try').first()).toBeVisible();
      await expectWhole('idle');
      engine.upTo(0);
      await page.getByRole('button', { name: 'Start' }).click();
      await engine.endStep(1);
      await expect(page.locator('#status-now')).toHaveText(/^Evaluating the untrained model, \d+ of 256$/);
      await expectWhole('running, the longest status');
      await page.getByRole('button', { name: 'Pause' }).click();
      await expect(page.locator('#status-now')).toContainText('then pauses');
      await expectWhole('pausing');
      engine.open();
      await expectState(page, 'paused');
      await page.getByRole('button', { name: 'Resume' }).click();
      await expectState(page, 'done');
      await expect(page.locator('#result canvas')).toBeVisible();
      await expectWhole('done');
      await openDrawer(page, 'settings');
      await expectWhole('drawer open');
      const close = page.locator('#drawer-head').getByRole('button', { name: 'Close' });
      await expect(close).toBeInViewport({ ratio: 1 });
      await close.click({ trial: true }); // nothing covers it
    },
  );

// Only in --full, because it starts a separate browser.
testInFull('without scripts the page says what it needs', async ({ playwright, launchOptions, baseURL }) => {
  const args = [...launchOptions.args!, '--blink-settings=scriptEnabled=false'];
  const browser = await playwright.chromium.launch({ ...launchOptions, args });
  const page = await browser.newPage();
  await page.goto(baseURL!);
  const told = page.locator('noscript p'); // getByText ignores noscript
  await expect(told).toBeVisible();
  await expect(told).toContainText('needs JavaScript');
  await browser.close();
});
