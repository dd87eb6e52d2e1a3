/** Tests `npm run build:page`: the folder under a sub-path of a plain static server, and the single file from a disk. */

import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect } from '@playwright/test';
import { hasNatsServer } from '../natsServer.ts';
import { address, expectPoints, expectState, points, test, TINY } from './demo.ts';
import { lessonPages } from '../../scripts/lib/lessons.mjs';
import { figure, openLessonAt, write } from './lesson.ts';
import { openFor, region, tile } from './roomPage.ts';
import { portOf } from '../hubServer.ts';

const URL_OF_PAGE = 'https://example.org/webgrpo/';
const query = address(TINY).slice(1);

let folder: string;
let server: Server;
let root: string;

test.beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'webgrpo-page-'));
  const out = relative(process.cwd(), folder);
  execFileSync(process.execPath, ['scripts/buildPage.mjs', '--out', out, '--url', URL_OF_PAGE], { stdio: 'pipe' });
  server = createServer((request, response) => {
    const path = /^\/some\/sub\/path\/([\w.-]+(?:\/[\w.-]+)*)?(?:\?.*)?$/.exec(request.url!);
    try {
      const name = path![1] ?? 'index.html';
      const body = readFileSync(join(folder, 'page', name));
      const types: Record<string, string> = { html: 'text/html', js: 'text/javascript', css: 'text/css' };
      response.writeHead(200, { 'content-type': types[name.split('.').at(-1)!] ?? 'application/octet-stream' });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  root = `http://127.0.0.1:${portOf(server)}/some/sub/path/`;
});

test.afterAll(() => {
  server.close();
  rmSync(folder, { recursive: true });
});

test('the folder trains under a sub-path, and asks for nothing above it', async ({ page }) => {
  const missed: string[] = [];
  page.on('response', (response) => {
    if (response.status() >= 400 || !response.url().startsWith(root)) missed.push(response.url());
  });
  await page.goto(`${root}${query}`);
  await page.getByRole('button', { name: 'Watch a recorded run' }).click();
  await expect.poll(() => points(page, 'reward')).toBeGreaterThan(3);
  await page.goto('about:blank');
  await page.goto(`${root}${query}`);
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  expect(missed.filter((url) => !url.startsWith('blob:') && !url.startsWith('data:'))).toEqual([]);
});

test('a link preview finds title, description and picture', () => {
  const html = readFileSync(join(folder, 'page', 'index.html'), 'utf8');
  expect(html).toContain('<meta property="og:title"');
  expect(html).toMatch(/<meta\s+name="description"/);
  const [, image] = /property="og:image" content="([^"]+)"/.exec(html)!;
  expect(image).toBe(`${URL_OF_PAGE}preview.png`);
  const png = readFileSync(join(folder, 'page', 'preview.png'));
  expect([png.readUInt32BE(16), png.readUInt32BE(20)]).toEqual([1200, 630]);
});

test('the single file trains from a disk, without a server', async ({ page }) => {
  const asked: string[] = [];
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url())) asked.push(request.url());
  });
  const file = pathToFileURL(join(folder, 'webgrpo.html')).href;
  await page.goto(`${file}${query}`);
  expect(await page.evaluate(() => isSecureContext)).toBe(true);
  await page.getByRole('button', { name: 'Start' }).click();
  await expectState(page, 'done');
  await expectPoints(page, 'reward', 2);
  await expect(page.getByRole('region', { name: 'Result' })).toBeVisible();
  await page.getByRole('button', { name: 'Settings' }).click();
  await page.getByText('More settings').click();
  await page.getByLabel('Seed', { exact: true }).fill('7');
  await expect(page).toHaveURL(/seed=7/);
  expect(asked).toEqual([`${file}${query}`]);
});

test('the loop of a lesson in one file trains from a disk, without a server', async ({ page }) => {
  const file = pathToFileURL(join(folder, 'lessons', '3-run', 'index.html')).href;
  const wrong = await openLessonAt(page, file, '[data-figure="3.1"] svg');
  const first = figure(page, '3.1');
  const loop = readFileSync('demo/lessons/3-run/run.js', 'utf8');
  await write(page, first, loop.replace('steps = 60', 'steps = 2'));
  await first.getByRole('button', { name: /^Run it here/ }).click();
  await expect(first.getByText(/^Trained in .* 2 updates\.$/)).toBeVisible();
  expect(wrong).toEqual([file]);
});

for (const name of Object.keys(lessonPages()))
  test(`${name} opens under the sub-path and from a disk, and asks for nothing else`, async ({ page }) => {
    const entry = name === 'lessons' ? 'lessons/index.html' : `lessons/${name}/index.html`;
    expect(await openLessonAt(page, root + entry)).toEqual([]);
    const file = pathToFileURL(join(folder, entry)).href;
    expect(await openLessonAt(page, file)).toEqual([file]);
    for (const one of await page.locator('[data-figure]').all()) await expect(one.locator('.says')).toHaveCount(1);
  });

test('the single file plays the recorded run without WebGPU', async ({ page }) => {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined }));
  await page.goto(pathToFileURL(join(folder, 'webgrpo.html')).href);
  await expectState(page, 'no-gpu');
  await expect.poll(() => points(page, 'reward')).toBeGreaterThan(3);
});

test('the folder and the single file work for a room, and connect to no other server', async ({ page }) => {
  test.skip(!hasNatsServer(), 'nats-server is not installed');
  const { realRoom } = await import('./realRoom.ts');
  const real = await realRoom();
  const refused: string[] = [];
  page.on('console', (message) => {
    if (message.text().includes('Content Security Policy')) refused.push(message.text());
  });
  const { webSocket: webSocketUrl } = real.room.server;
  const pages = [root, pathToFileURL(join(folder, 'webgrpo.html')).href];
  try {
    for (const [index, from] of pages.entries()) {
      const sockets = await openFor(page, webSocketUrl, real.room.code, from);
      await page.getByRole('button', { name: 'Join', exact: true }).click();
      await expect(region(page).getByRole('status')).toHaveText('Working for the room.');
      await real.rollouter.start(real.groups.slice(2 * index, 2 * index + 2));
      await expect.poll(() => real.samples.length).toBe(4 * (index + 1));
      await real.rollouter.updateWeights(index + 1);
      await expect(tile(page, 'Weights of step')).toHaveText(`${index + 1}`);
      expect(new Set(sockets)).toEqual(new Set([`${webSocketUrl}/`]));
      expect(refused).toEqual([]);
      await page.evaluate((url) => new WebSocket(url).url, 'ws://127.0.0.1:9').catch(() => {});
      await expect.poll(() => refused.splice(0).length).toBeGreaterThan(0);
    }
  } finally {
    await real.end();
  }
});
