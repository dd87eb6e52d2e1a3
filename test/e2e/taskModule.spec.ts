/** Tests a task from another origin: nothing is fetched before the visitor agrees. Afterwards the task trains in its sandbox. */

import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { expect, type Page } from '@playwright/test';
import { expectPoints, expectState, openPage, test, testInFull, TINY } from './demo.ts';
import { portOf } from '../hubServer.ts';

let server: Server;
let asked: string[] = [];
let module = '';
/** True if the server allows other sites to read it. */
let allowed = true;

test.beforeEach(async () => {
  [asked, allowed] = [[], true];
  module = readFileSync('examples/task-module.js', 'utf8');
  server = createServer(({ url }, response) => {
    asked.push(url!);
    if (allowed) response.setHeader('access-control-allow-origin', '*');
    response.writeHead(200, { 'content-type': 'text/javascript' });
    response.end(module);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
test.afterEach(() => new Promise((resolve) => server.close(resolve)));

const host = () => `127.0.0.1:${portOf(server)}`;
const question = (page: Page) => page.locator('.notice.offer');

test('a link asks before anything is fetched, names the host, and takes no for an answer', async ({ page }) => {
  const seen: string[] = [];
  page.on('request', (request) => seen.push(request.url()));
  await page.goto(`/?task=${encodeURIComponent(`http://${host()}/sums.js`)}&autostart`);
  await expect(question(page)).toContainText(`a module from ${host()}: http://${host()}/sums.js`);
  expect(asked).toEqual([]);
  await page.getByRole('button', { name: 'Cancel' }).click();
  await expectState(page, 'failed');
  await expect(page.locator('.notice.error')).toContainText(
    `The task module http://${host()}/sums.js was not allowed to load.`,
  );
  expect(asked).toEqual([]);
  expect(seen.filter((url) => url.includes(host()))).toEqual([]);
});

testInFull('a module whose server forbids other sites ends in a sentence that says so', async ({ page }) => {
  allowed = false;
  await openPage(page, { ...TINY, task: `http://${host()}/sums.js` });
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('button', { name: `Load from ${host()}` }).click();
  await expectState(page, 'failed');
  await expect(page.locator('.notice.error')).toHaveText(
    `The task module http://${host()}/sums.js could not be fetched: its server does not allow other sites to read it (CORS). ` +
      'Check the address.',
  );
});

test('an allowed module trains; forbidden names are undefined in it', async ({ page }) => {
  const REACHED = ['fetch', 'XMLHttpRequest', 'WebSocket', 'importScripts', 'indexedDB', 'localStorage', 'caches'];
  REACHED.push('navigator', 'postMessage', 'document', 'window', 'self', 'Worker', 'crypto', 'SharedArrayBuffer');
  // The problems' texts list the forbidden names that the module can reach.
  module = module.replace('What is', `\${${JSON.stringify(REACHED)}.filter((name) => name in globalThis).join()} is`);
  await openPage(page, { ...TINY, steps: 1, task: `http://${host()}/sums.js` });
  await page.getByRole('button', { name: 'Start' }).click();
  await page.getByRole('button', { name: `Load from ${host()}` }).click();
  await expectState(page, 'done');
  await expectPoints(page, 'reward', 1);
  expect(asked).toEqual(['/sums.js']);
  await expect(page.locator('#rollouts .question')).toHaveText(/^\s*is \d+ \+ \d+\?/);
});
