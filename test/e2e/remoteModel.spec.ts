/**
 * Tests models from a hub on another origin: the worker downloads them into the real OPFS, resumes a download, keeps the files, and reads
 * them in pieces.
 */

import { readFileSync } from 'node:fs';
import { expect, type Page } from '@playwright/test';
import { type Hub, startHub } from '../hubServer.ts';
import {
  expectKept,
  expectState,
  expectStep,
  onlyOnReal,
  testInFull,
  openPage,
  stepInFull,
  test,
  TINY,
} from './demo.ts';

const FILES = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
const WEIGHTS = 'model.safetensors';
const shipped = (file: string) => new Uint8Array(readFileSync(`checkpoints/gsm8k-tool/${file}`));

let hub: Hub;
test.beforeEach(async () => {
  hub = await startHub(new Map(FILES.map((file) => [file, shipped(file)])));
});
test.afterEach(() => hub.close());

const start = async (page: Page, more: Record<string, string> = {}) => {
  await openPage(page, { ...TINY, steps: 1, 'model.path': 'org/tiny', hub: hub.endpoint, ...more });
  await page.getByRole('button', { name: 'Start' }).click();
};
const bytesAsked = () => hub.log.filter((line) => line.startsWith('/cdn/'));
const line = (page: Page) => page.locator('#download');

/** Makes the hub send half of the weights. When `broken` is called, the hub breaks the connection. */
function stopHalfWay(): { broken: () => void; half: number } {
  const all = hub.files.get(WEIGHTS)!;
  const half = Math.floor(all.length / 2);
  let letGo = () => {};
  const told = new Promise<void>((resolve) => (letGo = resolve));
  hub.faults.set(WEIGHTS, [
    (response) => {
      response.writeHead(200, { etag: hub.etagOf(WEIGHTS), 'content-length': all.length });
      response.write(all.subarray(0, half));
      void told.then(() => response.destroy());
    },
  ]);
  return { broken: letGo, half };
}

test('a broken download is shown and resumed, and not repeated later', async ({ page }) => {
  const { broken, half } = stopHalfWay();
  await start(page);
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  const total = hub.files.get(WEIGHTS)!.length;
  await expect(line(page)).toHaveText(`${WEIGHTS}: ${mib(half)} of ${mib(total)} MiB`);
  await expect(page.getByRole('progressbar', { name: 'Model download' })).toHaveJSProperty('value', half / total);
  broken();
  await expectState(page, 'done');
  await expect(line(page)).toBeHidden();
  const asked = bytesAsked().filter((request) => request.includes(WEIGHTS));
  expect(asked).toEqual([`/cdn/${WEIGHTS}`, `/cdn/${WEIGHTS} bytes=${half}-`]);

  // Every day unit hub expects that a repository comes from the cache alone.
  await stepInFull('the next load needs no network', async () => {
    hub.log.length = 0;
    hub.close();
    await start(page);
    await expectState(page, 'done');
    expect(bytesAsked()).toEqual([]);
  });
});

testInFull(
  'a run resumed without its hub in the address is asked and shared with its hub',
  async ({ page, context, engine }) => {
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    engine.upTo(1);
    await openPage(page, { ...TINY, 'model.path': 'org/tiny', hub: hub.endpoint, 'trainer.saveFreq': 1 });
    await page.getByRole('button', { name: 'Start' }).click();
    await expectStep(page, 1);
    await expectKept(page, 1);
    await openPage(page, TINY);
    engine.open(); // the run must not end before its page is closed
    await page.locator('.offer').getByRole('button', { name: 'Resume' }).click();
    await expectState(page, 'done');
    await page.getByRole('textbox', { name: /Your problem/ }).fill('How much is 6 * 7?');
    await page.getByRole('textbox', { name: /Your problem/ }).press('Enter');
    await expect(page.locator('#ask .exchange')).toHaveCount(1);
    await page.getByRole('button', { name: 'Copy link' }).click();
    await expect(page.getByText(/^Copied: settings and curves/)).toBeVisible();
    const link = new URL(await page.evaluate(() => navigator.clipboard.readText()));
    expect(link.searchParams.get('hub')).toBe(hub.endpoint);
  },
);

testInFull('a download of a closed page is resumed when the page is opened again', async ({ page }) => {
  onlyOnReal();
  const { broken, half } = stopHalfWay();
  await start(page);
  await expect(line(page)).toContainText(WEIGHTS);
  await page.goto('about:blank');
  broken();
  await start(page, { 'model.path': 'org/tiny' });
  await expectState(page, 'done');
  const [first, second] = bytesAsked().filter((request) => request.includes(WEIGHTS));
  expect(first).toBe(`/cdn/${WEIGHTS}`);
  const from = Number(/bytes=(\d+)-/.exec(second)![1]);
  expect(from).toBeGreaterThan(0);
  expect(from).toBeLessThanOrEqual(half);
});

testInFull('a failed download is one error message on the page', async ({ page }) => {
  await start(page, { 'model.path': 'org/nope' });
  await expectState(page, 'failed');
  const notice = page.locator('.notice.error');
  await expect(notice).toHaveText(`org/nope: ${hub.endpoint} has no such model or revision. Check its name.`);
  hub.files.set(WEIGHTS, hub.files.get(WEIGHTS)!.slice(0, 1000));
  await start(page, { 'model.path': `${hub.endpoint}/files` });
  await expectState(page, 'failed');
  await expect(notice).toContainText(/model\.safetensors claims a header of \d+ bytes, but only 992 follow/);
  await expect(line(page)).toBeHidden();
});
