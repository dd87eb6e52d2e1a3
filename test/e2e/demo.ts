/** Helpers of the page's tests: open it with settings in its address, hold its engine, and read what it shows. */

import { test as base, type Browser, expect, type Page } from '@playwright/test';
import type { TestGate } from '../scripted/gate.ts';
import { serveGate } from '../scripted/gateServer.ts';

export interface Hands {
  /** Holds and breaks the page's scripted engine. A test that asks for it is skipped on a real one. */
  engine: TestGate;
  /** A browser whose GPU process has crashed lets no page use the GPU for minutes when it crashes again: a test that crashes it has its own. */
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
  own: async ({ playwright, launchOptions, baseURL }, use) => {
    const browser = await playwright.chromium.launch(launchOptions);
    const context = await browser.newContext(baseURL === undefined ? {} : { baseURL });
    await use({ browser, page: await context.newPage() });
    await browser.close();
  },
});

/** Small enough for a step in a second or two, on two cores without a GPU. */
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

/** Address of the page; keys with a dot are config keys. */
export function address(settings: Record<string, string | number | boolean> = {}): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(settings)) {
    if (key.includes('.')) query.append('set', `${key}=${value}`);
    else query.set(key, String(value));
  }
  return `/?${query.toString()}`;
}

/** Opens the page and its settings, and waits until it may be started. */
export async function openPage(page: Page, settings: Parameters<typeof address>[0] = {}): Promise<void> {
  await page.goto(address(settings));
  await expect(page.getByRole('button', { name: 'Start' })).toBeEnabled();
  await page.getByText('Settings', { exact: true }).click();
}

export const isFull = process.env['FULL_TESTS'] === '1';

/** First line of a test whose part of the page others look at every day. */
export const skipUnlessFull = (): void => base.skip(!isFull, 'npm test -- --full');

/** First line of a test that takes a real engine minutes. */
export const onlyInFull = (): void =>
  base.skip(!isFull || base.info().project.name !== 'real', 'a real engine takes minutes: npm test -- --full');

export const expectState = (page: Page, wanted: string): Promise<void> =>
  expect(page.locator('body')).toHaveAttribute('data-state', wanted);

/** So many steps are counted as done. */
export const expectStep = (page: Page, done: number): Promise<void> =>
  expect(page.locator('#status-step')).toHaveText(new RegExp(`^${done} of `));

/** At least so many: for a run that no test holds. */
export const waitForStep = (page: Page, done: number): Promise<void> =>
  expect.poll(async () => Number.parseInt(await page.locator('#status-step').innerText())).toBeGreaterThanOrEqual(done);

export const expectPoints = (page: Page, chart: string, count: number): Promise<void> =>
  expect(page.locator(`figure[data-chart="${chart}"]`)).toHaveAttribute('data-points', `${count}`);

/** So many states of the run shown are in the browser's files. */
export const expectKept = (page: Page, count: number): Promise<void> =>
  expect(page.locator('.timeline-marks i')).toHaveCount(count);

/** Points of a curve. */
export async function points(page: Page, chart: string): Promise<number> {
  return Number(await page.locator(`figure[data-chart="${chart}"]`).getAttribute('data-points'));
}

/** Share of a curve's canvas that is drawn on, 0 to 1. */
export async function inkOf(page: Page, chart: string): Promise<number> {
  return page.locator(`figure[data-chart="${chart}"] canvas`).evaluate((canvas: HTMLCanvasElement) => {
    const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
    let drawn = 0;
    for (let i = 3; i < data.length; i += 4) if (data[i] > 0) drawn++;
    return drawn / (canvas.width * canvas.height);
  });
}

/** All that the page says above its tries from now on, however soon something else takes its place. */
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
