import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig } from '@playwright/test';
import { webGpuLaunchOptions } from './src/cli/chromium.mjs';

/** Use another port for a second checkout on the same machine. The next port is used too. */
const PORT = Number(process.env['E2E_PORT'] ?? 4173);
const isFull = process.env['FULL_TESTS'] === '1';
/** True if `npm test` has built the page with the scripted engine. Nothing else runs while Playwright waits for its servers. */
const isBuilt = process.env['E2E_BUILT'] === '1';

/** Tests of a real engine, and of pages without an engine. All others test the page with a scripted engine. */
const REAL = ['train', 'lost', 'report'];
/** Tests that run only with --full and only once: built pages, the packed package, the length of tasks, Firefox, and MCP in a page. */
const ONCE = ['staticPage.spec.ts', 'manyTries.spec.ts', 'pack.test.ts', 'firefox.spec.ts', 'mcp.spec.ts'];
/** Tests that run only with --full, or if their variable is set. */
const ASKED: Readonly<Record<string, string>> = { 'states.spec.ts': 'PICTURES', 'walk.spec.ts': 'WALKS' };
/** Every day Playwright would compile these files only to skip each of their tests. */
const isOnlyFull = (file: string) =>
  file in ASKED
    ? process.env[ASKED[file]] === undefined
    : !/^\s*test(If)?\(/m.test(readFileSync(join('test/e2e', file), 'utf8'));
const everyday = readdirSync('test/e2e').filter((file) => file.endsWith('.spec.ts') && (isFull || !isOnlyFull(file)));
const real = [...REAL.map((name) => `${name}.spec.ts`), ...(isFull ? ONCE : [])];
/** Makes the page with the scripted engine use the real one (test/scripted/vitePlugin.ts). */
const realEngine = {
  cookies: [
    {
      ...{ name: 'engine', value: 'real', domain: '127.0.0.1', path: '/', expires: -1 },
      ...{ httpOnly: false, secure: false, sameSite: 'Lax' as const },
    },
  ],
  origins: [],
};

const vite = (...words: string[]) => `node node_modules/vite/bin/vite.js ${words.join(' ')}`;
const at = (port: number) => `--host 127.0.0.1 --port ${port} --strictPort`;
const { args, ...launch } = webGpuLaunchOptions();
/** No page reaches a server that is not the test's. A route that aborts such requests would switch the browser's cache off. */
const launchOptions = { ...launch, args: [...args, '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'] };
const url = (port: number) => `http://127.0.0.1:${port}`;
/** Milliseconds after which a wait counts as hanging. No test depends on the limit. Use a lower one while you write a test. */
const GUARD = Number(process.env['E2E_GUARD'] ?? 120_000);
/** Limits for one wait. A real engine trains for minutes, with --full for up to ten. */
const guarded = (wait: number) => ({ timeout: 5 * wait, expect: { timeout: wait } });

export default defineConfig({
  testDir: 'test/e2e',
  workers: isFull ? 1 : 2, // --full measures the main thread, which needs the machine to itself
  use: {
    actionTimeout: GUARD,
    launchOptions,
  },
  projects: [
    // First, so that no long test is left for one worker at the end.
    // With --full, Vite's development server serves the page, and tests that do not control the engine also run on a real one.
    {
      name: 'real',
      ...guarded(isFull ? 5 * GUARD : 3 * GUARD),
      ...(!isFull && { testMatch: real }),
      use: isFull ? { baseURL: url(PORT) } : { baseURL: url(PORT + 1), storageState: realEngine },
    },
    {
      name: 'scripted',
      ...guarded(GUARD),
      testMatch: everyday.filter((file) => !real.includes(file) && !ONCE.includes(file)),
      use: { baseURL: url(PORT + 1) },
    },
  ],
  webServer: [
    ...(isFull ? [{ command: vite(at(PORT)), url: url(PORT), reuseExistingServer: false, timeout: GUARD }] : []),
    {
      command: [
        ...(isBuilt ? [] : [vite('build --mode scripted --logLevel error')]),
        vite('preview --mode scripted', at(PORT + 1)),
      ].join(' && '),
      url: url(PORT + 1),
      reuseExistingServer: false,
      timeout: GUARD,
    },
  ],
});
