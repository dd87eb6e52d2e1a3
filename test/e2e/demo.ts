/** Helpers for tests of the page: they open the page with settings in its address, control its engine, and read what it shows. */

import { test as base, type Browser, expect, type Page } from '@playwright/test';
import type { TestGate } from '../scripted/gate.ts';
import { serveGate } from '../scripted/gateServer.ts';
import type { encodeResult as encode } from '../../demo/state/address/share.ts';

export interface Hands {
  /** Controls the page's scripted engine. Tests that use it are skipped on a real engine. */
  engine: TestGate;
  /**
   * A separate browser, for tests that crash the GPU process: after a second crash, the browser denies the GPU to all pages for minutes.
   */
  own: { browser: Browser; page: Page };
}

export const test = base.extend<Hands>({
  engine: async ({ context, baseURL }, use, { project }) => {
    base.skip(project.name !== 'scripted', 'holds the scripted engine');
    const { gate, port, close } = await serveGate();
    await context.addCookies([{ name: 'gate', value: `${port}`, url: baseURL ?? '' }]);
    await use(gate);
    await close();
  },
  own: async ({ playwright, launchOptions, baseURL, storageState }, use) => {
    const browser = await playwright.chromium.launch(launchOptions);
    const context = await browser.newContext({ ...(baseURL && { baseURL }), ...(storageState && { storageState }) });
    await use({ browser, page: await context.newPage() });
    await browser.close();
  },
});

/** Settings so small that a step takes a second or two, on two cores without a GPU. */
export const TINY = {
  steps: 2,
  n: 2,
  'data.trainBatchSize': 2,
  'actor.ppoMiniBatchSize': 2,
  'data.maxResponseLength': 24,
  'data.valMaxSamples': 4,
  'rollout.maxNumSeqs': 8,
  'trainer.valBeforeTrain': false,
  'trainer.testFreq': 0,
};

/** Returns the address of the page with parameters. A name with a dot is a config key. */
export function address(settings: Record<string, string | number | boolean> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(settings)) {
    if (key.includes('.')) query.append('set', `${key}=${value}`);
    else query.set(key, String(value));
  }
  return `/?${query.toString()}`;
}

/** Opens the page and its settings, and waits until Start can be pressed. */
export async function openPage(page: Page, settings: Parameters<typeof address>[0] = {}): Promise<void> {
  await page.goto(address(settings));
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
  await page.getByRole('button', { name: 'Settings' }).click();
}

/** Opens the settings or the saved runs in the drawer. */
export const openDrawer = (page: Page, name: 'settings' | 'runs'): Promise<void> =>
  page.locator(`#drawer-buttons [data-opens="${name}"][aria-expanded="false"]`).click();

/** Opens the menu at the thumb of the timeline, and chooses an action. */
export async function fromStep(page: Page, action: RegExp): Promise<void> {
  await page.locator('.step-menu summary').click();
  await page.locator('.step-menu').getByRole('button', { name: action }).click();
}

export const isFull = process.env['FULL_TESTS'] === '1';

/** Declares a test that only --full runs, unless it `isEveryday`. Declared as skipped, it opens no page. */
export const testIf = (isEveryday: boolean): typeof test.only => (isFull || isEveryday ? test : test.skip);

/** Declares a test of behaviour that the everyday tests cover in another way. */
export const testInFull = testIf(false);

/** A step of an everyday test that only --full runs. */
export const stepInFull = async (title: string, body: () => Promise<void> | void): Promise<void> => {
  if (isFull) await test.step(title, body);
};

/** Skips the test on a scripted engine. Called in the first line of a `testInFull` that is only about a real engine. */
export const onlyOnReal = (): void =>
  base.skip(base.info().project.name !== 'real', 'a real engine takes minutes: npm test -- --full');

/** Skips the test on Vite's development server. A built page has other files, with hashes in their names, and style sheets. */
export const onlyBuilt = (): void =>
  base.skip(base.info().project.name === 'real', 'needs a built page, which the project scripted serves');

export const expectState = (page: Page, wanted: string): Promise<void> =>
  expect(page.locator('body')).toHaveAttribute('data-state', wanted);

/** Waits until the status shows exactly `done` completed steps. */
export const expectStep = (page: Page, done: number): Promise<void> =>
  expect(page.locator('#status-step')).toHaveText(new RegExp(`^${done} of `));

/** Waits until the status shows at least `done` completed steps, for a run whose steps the test does not control. */
export const waitForStep = (page: Page, done: number): Promise<void> =>
  expect.poll(async () => Number.parseInt(await page.locator('#status-step').innerText())).toBeGreaterThanOrEqual(done);

export const expectPoints = (page: Page, chart: string, count: number): Promise<void> =>
  expect(page.locator(`figure[data-chart="${chart}"]`)).toHaveAttribute('data-points', `${count}`);

/** Waits until the timeline shows `count` saved checkpoints of the shown run. */
export const expectKept = (page: Page, count: number): Promise<void> =>
  expect(page.locator('.timeline-marks .checkpoint')).toHaveCount(count);

/** Waits until no part is wider than the window: charts follow a new size in a later frame. */
export const expectNoSideScroll = (page: Page, message = 'wider than the window'): Promise<void> =>
  expect
    .poll(() => page.evaluate(() => document.documentElement.scrollWidth - innerWidth), { message })
    .toBeLessThanOrEqual(0);

/** Makes the page fetch something and waits for it. The page has then handled every message that arrived earlier. */
export const roundTrip = (page: Page): Promise<string> =>
  page.evaluate(() => fetch('/').then((answer) => answer.text()));

/** Returns the number of points of a curve. */
export async function points(page: Page, chart: string): Promise<number> {
  return Number(await page.locator(`figure[data-chart="${chart}"]`).getAttribute('data-points'));
}

/** Returns the share of pixels of a chart's canvas that are drawn on, 0 to 1. */
export async function inkOf(page: Page, chart: string): Promise<number> {
  return page.locator(`figure[data-chart="${chart}"] canvas`).evaluate((canvas: HTMLCanvasElement) => {
    const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
    let drawn = 0;
    for (let i = 3; i < data.length; i += 4) if (data[i] > 0) drawn++;
    return drawn / (canvas.width * canvas.height);
  });
}

/** Waits until a chart's curve is drawn. */
export const expectInk = (page: Page, chart: string, more = 0.005): Promise<void> =>
  expect.poll(() => inkOf(page, chart), { message: `${chart} is drawn` }).toBeGreaterThan(more);

/** Records every notice above the tries from now on, including those that are soon replaced. */
export async function noticesOf(page: Page): Promise<() => Promise<string>> {
  const seen = await page.evaluateHandle(() => {
    const [place, texts] = [document.getElementById('notices')!, [] as string[]];
    const look = () => texts.push(place.innerText);
    new MutationObserver(look).observe(place, { subtree: true, childList: true, characterData: true });
    look();
    return texts;
  });
  return async () => (await seen.jsonValue()).join(' | ');
}

/**
 * Returns a result as the page writes it into a link. The module is imported here, because Playwright compiles all that a spec file imports
 * before the first test of any file starts.
 */
export const encodeResult: typeof encode = async (result) =>
  (await import('../../demo/state/address/share.ts')).encodeResult(result);
