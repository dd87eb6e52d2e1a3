/** Builds and serves the page. */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { build, defineConfig, type Plugin, type ResolvedConfig, type Rolldown, type UserConfig } from 'vite';
import { pagePolicy } from './scripts/lib/contentPolicy.mjs';
import { inline } from './scripts/lib/inline.mjs';
import { kitFirst, lessonPages, lessonStills } from './scripts/lib/lessons.mjs';
import { scriptedPage } from './test/scripted/vitePlugin.ts';

/** The page. What it loads before Start is one file: fifty small ones are more bytes, and a request each. */
const PAGE: Rolldown.RolldownOptions = {
  input: { index: resolve('demo/index.html') },
  output: { codeSplitting: { groups: [{ name: 'page', tags: ['$initial'], test: /\.[jt]sx?$/ }] } },
};

/** Builds the lessons after the page, apart from it: modules that both use would be split off into files of their own. */
const thenLessons = (mode: string): Plugin => {
  let page: ResolvedConfig;
  return {
    name: 'then-lessons',
    apply: 'build',
    configResolved: (resolved) => void (page = resolved),
    async writeBundle() {
      const { logLevel = 'info', build: to } = page;
      const apart = configOf(mode, { input: lessonPages() });
      const output = { ...apart.build, outDir: to.outDir, emptyOutDir: false };
      await build({ ...apart, configFile: false, mode, logLevel, build: output });
    },
  };
};

const configOf = (mode: string, rolldownOptions: Rolldown.RolldownOptions): UserConfig => ({
  plugins: [inline(), lessonStills(), kitFirst(), pagePolicy(), ...scriptedPage(mode)],
  root: 'demo',
  base: './',
  build: {
    outDir: resolve('dist/demo'),
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0, // no asset becomes a data: URL, which a host's policy can forbid to fetch
    rolldownOptions,
  },
  worker: { format: 'es' },
  // If Vite finds a package late, its server reloads the page in the middle of a run.
  optimizeDeps: {
    include: [
      ...['@preact/signals', 'comlink', 'fastest-levenshtein', 'idb', 'preact', 'uplot', 'valibot', 'yaml'],
      ...['@huggingface/jinja', '@huggingface/tokenizers'],
      ...[
        'preact/hooks',
        '@codemirror/commands',
        '@codemirror/lang-javascript',
        '@codemirror/language',
        '@codemirror/lint',
      ],
      ...['@codemirror/state', '@codemirror/view', '@lezer/highlight'],
      // Only if tests have been run, because npm start and npm run demo install neither tfjs nor NATS.
      ...['@tensorflow/tfjs', '@tensorflow/tfjs-backend-webgpu', '@nats-io/nats-core', '@nats-io/jetstream'].filter(
        (name) => existsSync(resolve('node_modules', name)),
      ),
    ],
  },
  // Saving a file must not end a run in an open page. Changes appear after a manual reload.
  server: { fs: { allow: ['..'] }, hmr: false },
});

export default defineConfig(({ mode }) => {
  const config = configOf(mode, PAGE);
  return { ...config, plugins: [...config.plugins!, thenLessons(mode)] };
});
