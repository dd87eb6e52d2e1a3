/** Builds command line, benchmarks and worker entries for Node. Our sources and WGSL are bundled; packages stay in node_modules. */

import { defineConfig } from 'vite';
import { inline } from './scripts/lib/inline.mjs';

const entries = {
  bin: 'src/cli/bin.ts',
  bench: 'bench/main.ts',
  'bench-simulation': 'bench/simulation.ts',
  'bench-verification': 'bench/verification.ts',
  campaign: 'campaign/main.ts',
  'campaign-inputs': 'campaign/inputs/child.ts',
  'engine.worker': 'src/engine.worker.ts',
};

// `npm run build` uses `--mode package`, which packs neither benchmark nor campaign.
export default defineConfig(({ mode }) => ({
  plugins: [inline()],
  build: {
    ssr: true,
    target: 'node20',
    sourcemap: true,
    minify: false,
    emptyOutDir: true,
    rolldownOptions: {
      // npm start does not install these. Vite itself does not bundle other installed packages.
      external: /^(@jax-js\/|@tensorflow\/|onnxruntime-web|fast-check)/,
      input: Object.fromEntries(
        Object.entries(entries).filter(([name]) => mode !== 'package' || !/^(bench|campaign)/.test(name)),
      ),
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: 'chunks/[name]-[hash].js',
        // Maps name the files of src and kernels, which are next to them.
        sourcemapExcludeSources: true,
      },
    },
  },
}));
