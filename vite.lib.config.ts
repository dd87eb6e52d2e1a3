/** The library: ES modules with the WGSL inside and packages left to the user's own install. */

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
        tasks: 'src/tasks/index.ts',
        mcp: 'src/extensions/mcp/index.ts',
        learner: 'src/extensions/learner/index.ts',
        yaml: 'src/yaml.ts',
        tfjs: 'src/tfjs.ts',
        node: 'src/node.ts',
        'engine.worker': 'src/workers/engine.worker.ts',
      },
      formats: ['es'],
    },
    rolldownOptions: {
      // Everything that is not a path of ours.
      external: (id) => !/^[./]|^[A-Za-z]:\\|^\0/.test(id),
      output: {
        entryFileNames: '[name].js',
        chunkFileNames: 'chunks/[name]-[hash].js',
        // Maps name the files of src and kernels, which lie beside.
        sourcemapExcludeSources: true,
      },
    },
  },
});
