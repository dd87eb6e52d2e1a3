/** Size of the library as a page would load it. */

import { gzipSync } from 'node:zlib';

const LOADED_WHEN_USED = /^(@tensorflow\/|@xenova\/|minisearch|quickjs-emscripten-core|@jitl\/)/;

/** Bundles a module with its packages, minified; what it loads only when used (tfjs) is not counted. */
export async function gzipBytesOf(entry) {
  const { build } = await import('vite');
  const { output } = await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      target: 'es2023',
      minify: true,
      lib: { entry, formats: ['es'], fileName: 'size' },
      rolldownOptions: { external: (id) => LOADED_WHEN_USED.test(id) },
    },
  }).then((results) => (Array.isArray(results) ? results[0] : results));
  return output
    .filter(({ type }) => type === 'chunk')
    .reduce((sum, { code }) => sum + gzipSync(code, { level: 9 }).length, 0);
}
