import { defineConfig } from '@playwright/test';
import { CHROMIUM_ARGS } from './scripts/lib/chromium.mjs';

/** Set by the set-up; without it Playwright looks for a browser of its own. */
const chromium = process.env['CHROME_PATH'];
/** Another one for a second checkout on the same machine; the next one is taken too. */
const PORT = Number(process.env['E2E_PORT'] ?? 4173);
const isFull = process.env['FULL_TESTS'] === '1';

/** What only a real engine or the source's own files can show. All else is the page's behaviour, over a scripted engine. */
const REAL = ['train', 'lost', 'remoteModel', 'fileSystems', 'mcp', 'report', 'firefox'];
/** Built pages, the packed package, and how long tasks take: with --full. */
const FULL = ['staticPage.spec.ts', 'manyTries.spec.ts', 'pack.test.ts'];
const real = [...REAL.map((name) => `${name}.spec.ts`), ...(isFull ? FULL : [])];

const vite = (...words: string[]) => `node node_modules/vite/bin/vite.js ${words.join(' ')}`;
const at = (port: number) => `--host 127.0.0.1 --port ${port} --strictPort`;
const url = (port: number) => `http://127.0.0.1:${port}`;
/** Limits of time guard against hanging alone, and no test is about them. A test that is being written may want less. */
const GUARD = Number(process.env['E2E_GUARD'] ?? 120_000);
/** For one wait; a real engine trains for minutes, with --full for half an hour. */
const guarded = (wait: number) => ({ timeout: 5 * wait, expect: { timeout: wait } });

export default defineConfig({
  testDir: 'test/e2e',
  workers: isFull ? 1 : 2, // --full judges what the main thread takes, which needs the machine to itself
  use: {
    actionTimeout: GUARD,
    launchOptions: {
      ...(chromium ? { executablePath: chromium } : {}),
      args: CHROMIUM_ARGS,
    },
  },
  projects: [
    { name: 'scripted', ...guarded(GUARD), testIgnore: [...real, ...FULL], use: { baseURL: url(PORT + 1) } },
    // With --full, what needs no hand on the engine runs on a real one as well.
    {
      name: 'real',
      ...guarded(isFull ? 15 * GUARD : 3 * GUARD),
      ...(!isFull && { testMatch: real }),
      use: { baseURL: url(PORT) },
    },
  ],
  webServer: [
    { command: vite(at(PORT)), url: url(PORT), reuseExistingServer: false, timeout: GUARD },
    {
      command: `${vite('build --mode scripted --logLevel error')} && ${vite('preview --mode scripted', at(PORT + 1))}`,
      url: url(PORT + 1),
      reuseExistingServer: false,
      timeout: GUARD,
    },
  ],
});
