import { playwright } from '@vitest/browser-playwright';
import { defineConfig } from 'vitest/config';
import { inline } from './scripts/lib/inline.mjs';

const GPU_TESTS = { include: ['test/gpu/**/*.test.ts'], testTimeout: 60_000, fileParallelism: false };

/** Set by the set-up; without it Playwright looks for a browser of its own. */
const chromium = process.env['CHROME_PATH'];

export default defineConfig({
  test: {
    projects: [
      {
        plugins: [inline()],
        test: { name: 'unit', include: ['test/unit/**/*.test.ts'], environment: 'node', testTimeout: 30_000 },
      },
      {
        plugins: [inline()],
        test: {
          ...GPU_TESTS,
          name: 'gpu',
          environment: 'node',
          setupFiles: ['test/gpu/setup.node.ts'],
          pool: 'forks',
        },
      },
      {
        plugins: [inline()],
        test: {
          ...GPU_TESTS,
          name: 'browser',
          // They need files or packages that only Node loads, or take long and would say the same in a browser.
          exclude: ['test/gpu/**/*.node.test.ts'],
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            instances: [{ browser: 'chromium' }],
            provider: playwright({
              launchOptions: {
                ...(chromium ? { executablePath: chromium } : {}),
                // The headless shell has no WebGPU, and headless Chromium hides its software adapter without the flag.
                args: ['--no-sandbox', '--enable-unsafe-webgpu'],
              },
            }),
          },
        },
      },
    ],
  },
});
