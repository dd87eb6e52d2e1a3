import { fileURLToPath } from 'node:url';
import { playwright } from '@vitest/browser-playwright';
import { defineConfig } from 'vitest/config';
import { webGpuLaunchOptions } from './src/cli/chromium.mjs';
import { inline } from './scripts/lib/inline.mjs';
import tsconfig from './tsconfig.json' with { type: 'json' };

const inGpuFolder = (names: readonly string[]) => names.map((name) => `test/gpu/${name}.test.ts`);

/**
 * Tests that need a browser (the worker, Chromium's limits, the order of its messages), and one file per family of kernels that Chromium
 * compiles differently. All other tests behave the same in Node on the same driver. `npm test -- --full` runs them in Chromium too.
 */
const IN_BROWSER = inGpuFolder([
  ...['device', 'passTimer', 'remoteRollout', 'client', 'javascript'],
  ...['matmul', 'rmsnorm', 'qk_norm', 'rope_kv', 'swiglu', 'embed', 'head_logprob', 'policy_loss', 'sample', 'adamw'],
  ...['lora_up', 'pack_unpack', 'halfKernels'],
]);

/**
 * Unit tests that need their own module graph, because they mock or reload a module, or need a process without an adapter. All other files
 * share one graph, so that the source is loaded only once. A graph of its own costs a file about a second of processor time.
 */
const ISOLATED = ['warmStart', 'runChanges', 'runControl', 'ownMethods', 'playwright', 'cliErrors', 'tfjsBackend'].map(
  (name) => `test/unit/${name}.test.ts`,
);

const isFull = process.env['FULL_TESTS'] === '1';

/** Milliseconds after which a test counts as hanging. No test depends on the limit. On lavapipe, one kernel compiles for minutes. */
const HANG_MS = 1_800_000;
const GUARD = { testTimeout: HANG_MS, hookTimeout: HANG_MS, expect: { poll: { timeout: 600_000, interval: 20 } } };

/** One process and one device for all files (test/gpu/sharedDevice.ts), so that a kernel is compiled once, not once per file. */
const GPU_TESTS = {
  ...{ ...GUARD, fileParallelism: false, isolate: false, restoreMocks: true },
  env: { FULL_TESTS: isFull ? '1' : '' },
};

/** What all programs import, and tests of single modules lack; and how `expect` compares arrays. */
const PARTS = ['src/engineParts.ts', 'src/trainerParts.ts', 'test/arraysEqual.ts'];

/** Files that share a module graph leave it as they found it. */
const REGISTERED = 'test/registered.ts';

const UNIT_TESTS = { environment: 'node', ...GUARD };

/** Examples import the package by name. In tests the name leads to the source. */
const alias = Object.entries(tsconfig.compilerOptions.paths).map(([name, [file]]) => ({
  find: new RegExp(`^${name}$`),
  replacement: fileURLToPath(new URL(file, import.meta.url)),
}));

export default defineConfig({
  plugins: [inline()],
  resolve: { alias },
  test: {
    // A module is transformed once for all projects and runs.
    experimental: {
      fsModuleCache: true,
      fsModuleCachePath: fileURLToPath(new URL('node_modules/.cache/webgrpo/modules', import.meta.url)),
    },
    projects: [
      {
        extends: true,
        test: {
          ...UNIT_TESTS,
          ...{ name: 'unit', include: ['test/unit/**/*.test.ts'], exclude: ISOLATED, isolate: false },
          setupFiles: [...PARTS, REGISTERED],
          maxWorkers: 3, // by default one on two cores; some tests wait for processes and servers
        },
      },
      {
        extends: true,
        test: {
          ...UNIT_TESTS,
          ...{ name: 'unit-isolated', include: ISOLATED, setupFiles: PARTS },
          ...{ maxWorkers: 2, sequence: { groupOrder: 1 } },
        },
      },
      {
        extends: true,
        test: {
          ...GPU_TESTS,
          // A software adapter compiles a kernel on one core. Two processes, each with a device, use both.
          ...{ fileParallelism: true, maxWorkers: 2 },
          name: 'gpu',
          include: ['test/gpu/**/*.test.ts'],
          environment: 'node',
          setupFiles: [...PARTS, 'test/gpu/setup.node.ts', 'test/gpu/setup.shared.ts', REGISTERED],
          pool: 'forks',
        },
      },
      {
        extends: true,
        // Vite reloads the page, and with it the tests, when a test imports a package that Vite has not bundled yet.
        ...(isFull && { optimizeDeps: { include: ['@tensorflow/tfjs', '@tensorflow/tfjs-backend-webgpu'] } }),
        test: {
          ...GPU_TESTS,
          name: 'browser',
          include: ['test/browser/**/*.test.ts', ...(isFull ? ['test/gpu/**/*.test.ts'] : IN_BROWSER)],
          // These tests need files or packages that only Node loads, or take long and would behave the same in a browser.
          exclude: ['test/gpu/**/*.node.test.ts'],
          setupFiles: [...PARTS, 'test/gpu/setup.shared.ts', REGISTERED],
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            instances: [{ browser: 'chromium' }],
            provider: playwright({
              launchOptions: webGpuLaunchOptions(),
            }),
          },
        },
      },
    ],
  },
});
