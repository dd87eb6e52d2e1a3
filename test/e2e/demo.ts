/** Helpers of the page's tests: open it with settings in its address, and read what it shows. */

import { type Browser, expect, type Page, test } from '@playwright/test';

/** A browser whose GPU process has crashed lets no page use the GPU for minutes when it crashes again: a test that crashes it has its own. */
export const testWithOwnBrowser = test.extend<{ own: { browser: Browser; page: Page } }>({
  own: async ({ playwright, launchOptions, baseURL }, use) => {
    const browser = await playwright.chromium.launch(launchOptions);
    const context = await browser.newContext(baseURL === undefined ? {} : { baseURL });
    await use({ browser, page: await context.newPage() });
    await browser.close();
  },
});

/** Small enough for a step in a second or two, on two cores without a GPU; a run that no machine ends while a test looks at it. */
export const TINY = {
  steps: 2000,
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

export async function expectState(page: Page, wanted: string, timeout: number): Promise<void> {
  await expect(page.locator('body')).toHaveAttribute('data-state', wanted, { timeout });
}

/** Points of a curve. */
export async function points(page: Page, chart: string): Promise<number> {
  return Number(await page.locator(`figure[data-chart="${chart}"]`).getAttribute('data-points'));
}

/** Steps that the status line counts as done. */
export async function stepsDone(page: Page): Promise<number> {
  return Number.parseInt(await page.locator('#status-step').innerText());
}

/** Does it in the page in the moment in which that shows `step` as done: a busy machine's test would come when a short run is over. */
const onceShown = (page: Page, step: number, then: 'wait' | 'reload') =>
  page.evaluate(
    ([step, then]) =>
      new Promise<void>((resolve) => {
        const look = () => {
          if (!(Number.parseInt(document.getElementById('status-step')?.innerText ?? '') >= step)) return;
          observer.disconnect();
          resolve();
          if (then === 'reload') return location.reload();
          const waiting = new XMLHttpRequest();
          waiting.open('GET', '/at-step', false);
          waiting.send();
        };
        const observer = new MutationObserver(look);
        observer.observe(document.body, { subtree: true, childList: true, characterData: true });
        look();
      }),
    [step, then] as const,
  );

/** The page stands still while `act` runs. The checkpoint of the step before is whole then; its own may not be. */
export async function atStep(page: Page, step: number, act: () => Promise<unknown>): Promise<void> {
  const acted = new Promise<void>((resolve, reject) => {
    void page.route('**/at-step', async (route) => {
      await act().then(() => resolve(), reject);
      await route.fulfill();
    });
  });
  await Promise.all([onceShown(page, step, 'wait'), acted]);
}

/** As `atStep`. */
export async function reloadAtStep(page: Page, step: number): Promise<void> {
  const loaded = page.waitForEvent('load', { timeout: 120_000 });
  await Promise.all([onceShown(page, step, 'reload'), loaded]);
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
