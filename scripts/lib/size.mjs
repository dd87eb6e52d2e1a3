/** Size of the library as a page would load it. */

import { gzipSync } from 'node:zlib';
import { shortWgsl } from './wgsl.mjs';

const LOADED_WHEN_USED = /^(@tensorflow\/|@xenova\/|minisearch)/;

/** What the library and its packages may weigh, gzipped and minified. */
export const LIMIT_BYTES = 150_000;

/** Bundles a module with its packages, minified; what it loads only when used (tfjs, a sandbox) is not counted. */
export async function gzipBytesOf(entry) {
  const { build } = await import('vite');
  const { output } = await build({
    configFile: false,
    logLevel: 'silent',
    plugins: [shortWgsl()],
    build: {
      write: false,
      target: 'es2023',
      minify: true,
      lib: { entry, formats: ['es'], fileName: 'size' },
      rolldownOptions: { external: (id) => LOADED_WHEN_USED.test(id) },
    },
  }).then((results) => (Array.isArray(results) ? results[0] : results));
  const chunks = new Map(output.filter(({ type }) => type === 'chunk').map((chunk) => [chunk.fileName, chunk]));
  const loaded = new Set();
  const load = (name) => {
    if (loaded.has(name) || !chunks.has(name)) return;
    loaded.add(name);
    chunks.get(name).imports.forEach(load);
  };
  for (const { isEntry, fileName } of chunks.values()) if (isEntry) load(fileName);
  return [...loaded].reduce((sum, name) => sum + gzipSync(chunks.get(name).code, { level: 9 }).length, 0);
}

/** One line, and whether the limit is kept. */
export async function checkSize(entry) {
  const bytes = await gzipBytesOf(entry);
  const kilobytes = (n) => (n / 1000).toFixed(1);
  const line = `library: ${kilobytes(bytes)} kB gzip, minified, its packages included; limit ${kilobytes(LIMIT_BYTES)} kB`;
  return { line, ok: bytes <= LIMIT_BYTES };
}
