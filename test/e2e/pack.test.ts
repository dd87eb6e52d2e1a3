/** The packed library installs into an empty Vite project, type-checks there, builds, and trains in its page. */

import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from '@playwright/test';
import { preview, type PreviewServer, version as viteVersion } from 'vite';

let project: string;
let server: PreviewServer | undefined;

const run = (command: string, args: string[], cwd: string) =>
  execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

test.beforeAll(() => {
  test.setTimeout(240_000);
  project = mkdtempSync(join(tmpdir(), 'webgrpo-pack-'));
  run(process.execPath, ['scripts/build.mjs'], resolve('.'));
  run('npm', ['pack', '--pack-destination', project], resolve('.'));
  const tarball = readdirSync(project).find((file) => file.endsWith('.tgz'))!;
  cpSync('test/e2e/pack', project, { recursive: true });
  writeFileSync(join(project, 'package.json'), '{ "name": "empty", "private": true, "type": "module" }\n');
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts'];
  run('npm', ['install', ...quiet, `./${tarball}`, `vite@${viteVersion}`], project);
});

test.afterAll(async () => {
  await server?.close();
  rmSync(project, { recursive: true, force: true });
});

test('the installed package has no heavy dependency', () => {
  const installed = readdirSync(join(project, 'node_modules'));
  expect(installed).toContain('webgrpo');
  for (const heavy of ['@tensorflow', '@xenova', 'webgpu', 'playwright']) expect(installed).not.toContain(heavy);
});

test('its types hold in a strict project', () => {
  const options = ['--noEmit', '--strict', '--target', 'es2023', '--module', 'esnext', '--moduleResolution', 'bundler'];
  const types = ['--types', 'vite/client', '--lib', 'es2023,dom,dom.iterable', '--skipLibCheck'];
  run(process.execPath, [resolve('node_modules/typescript/bin/tsc'), ...options, ...types, 'main.ts'], project);
});

test('it builds with Vite and trains in the page', async ({ page }) => {
  run(process.execPath, ['node_modules/vite/bin/vite.js', 'build', '--logLevel', 'warn'], project);
  server = await preview({
    root: project,
    configFile: false,
    logLevel: 'silent',
    preview: { host: '127.0.0.1', port: 0 },
  });
  await page.goto(server.resolvedUrls!.local[0]);
  await expect(page).toHaveTitle(/done|failed/, { timeout: 240_000 });
  const log = await page.locator('#log').textContent();
  expect(await page.title(), log ?? '').toBe('done');
  const entropies = JSON.parse(log!) as number[];
  expect(entropies).toHaveLength(2);
  for (const entropy of entropies) expect(entropy).toBeGreaterThan(0);
});
