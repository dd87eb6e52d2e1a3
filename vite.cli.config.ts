/** Command line, benchmarks and worker entries for Node: our sources and WGSL in, packages left to node_modules. */

import { readdirSync } from 'node:fs';
import { basename } from 'node:path';
import { defineConfig } from 'vite';
import { inline } from './scripts/lib/inline.mjs';

const workers = readdirSync('src/workers').filter((file) => file.endsWith('.worker.ts'));
const entries = {
  bin: 'src/cli/bin.ts',
  bench: 'bench/main.ts',
  'bench-simulation': 'bench/simulation.ts',
  'bench-verification': 'bench/verification.ts',
  campaign: 'campaign/main.ts',
  'campaign-inputs': 'campaign/inputs/child.ts',
  ...Object.fromEntries(workers.map((file) => [basename(file, '.ts'), `src/workers/${file}`])),
};

// `npm run build` packs neither benchmark nor campaign: `--mode package`.
export default defineConfig(({ mode }) => ({
  plugins: [inline()],
  build: {
    ssr: true,
    target: 'node20',
    sourcemap: true,
    minify: false,
    emptyOutDir: true,
    rolldownOptions: {
      // Not installed by npm start; every other package is, and Vite leaves it out by itself.
      external: /^(@jax-js\/|@tensorflow\/|onnxruntime-web|fast-check)/,
      input: Object.fromEntries(
        Object.entries(entries).filter(([name]) => mode !== 'package' || !/^(bench|campaign)/.test(name)),
      ),
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: 'chunks/[name]-[hash].js',
        // Maps name the files of src and kernels, which lie beside.
        sourcemapExcludeSources: true,
      },
    },
  },
}));
