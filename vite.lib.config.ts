/** Builds the library: ES modules with the WGSL included. Packages come from the user's own install. */

import { defineConfig } from 'vite';
import { inline } from './scripts/lib/inline.mjs';

export default defineConfig({
  plugins: [inline()],
  build: {
    outDir: 'dist/lib',
    emptyOutDir: true,
    target: 'es2023',
    minify: false,
    sourcemap: true,
    lib: {
      entry: {
        index: 'src/index.ts',
        tasks: 'src/tasks.ts',
        mcp: 'src/extensions/mcp/index.ts',
        learner: 'src/extensions/learner/index.ts',
        yaml: 'src/yaml.ts',
        tfjs: 'src/tfjs.ts',
        node: 'src/node.ts',
        playwright: 'src/playwright.ts',
        'engine.worker': 'src/engine.worker.ts',
      },
      formats: ['es'],
    },
    rolldownOptions: {
      // Everything except our own paths, and the compiler's helpers for syntax that the target lacks.
      external: (id) => !/^[./]|^[A-Za-z]:\\|^\0|^@oxc-project\/runtime\//.test(id),
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: 'chunks/[name]-[hash].js',
        // Maps name the files of src and kernels, which are next to them.
        sourcemapExcludeSources: true,
      },
    },
  },
});
