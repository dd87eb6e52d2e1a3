/** The page. */

import { resolve } from 'node:path';
import { defineConfig } from 'vite';

export default defineConfig({
  root: 'demo',
  base: './',
  build: { outDir: resolve('dist/demo'), emptyOutDir: true, target: 'es2023' },
  worker: { format: 'es' },
  server: { fs: { allow: ['..'] } },
});
