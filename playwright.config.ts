import { defineConfig } from '@playwright/test';

/** Set by the set-up; without it Playwright looks for a browser of its own. */
const chromium = process.env['CHROME_PATH'];
/** Another one for a second checkout on the same machine. */
const PORT = Number(process.env['E2E_PORT'] ?? 4173);

export default defineConfig({
  testDir: 'test/e2e',
  timeout: 180_000,
  expect: { timeout: 30_000 }, // a busy machine takes its time to show what has happened
  workers: 1,
  use: {
    actionTimeout: 60_000,
    baseURL: `http://127.0.0.1:${PORT}`,
    launchOptions: {
      ...(chromium ? { executablePath: chromium } : {}),
      args: ['--no-sandbox', '--enable-unsafe-webgpu'],
    },
  },
  webServer: {
    command: `node node_modules/vite/bin/vite.js --host 127.0.0.1 --port ${PORT} --strictPort`,
    url: `http://127.0.0.1:${PORT}`,
    reuseExistingServer: false,
    timeout: 60_000,
  },
});
