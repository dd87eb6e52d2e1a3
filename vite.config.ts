/** Builds and serves the page. */

import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { defineConfig } from 'vite';
import { pagePolicy } from './scripts/lib/contentPolicy.mjs';
import { inline } from './scripts/lib/inline.mjs';
import { kitFirst, lessonPages, lessonStills } from './scripts/lib/lessons.mjs';
import { scriptedPage } from './test/scripted/vitePlugin.ts';

export default defineConfig(({ mode }) => ({
  plugins: [inline(), lessonStills(), kitFirst(), pagePolicy(), ...scriptedPage(mode)],
  root: 'demo',
  base: './',
  build: {
    outDir: resolve('dist/demo'),
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0, // no asset becomes a data: URL, which a host's policy can forbid to fetch
    rolldownOptions: { input: { index: resolve('demo/index.html'), ...lessonPages() } },
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
}));
