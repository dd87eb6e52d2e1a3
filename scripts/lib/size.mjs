/** Size of the library as a page would load it. */

import { gzipSync } from 'node:zlib';
import { shortWgsl } from './wgsl.mjs';

const LOADED_WHEN_USED = /^(@tensorflow\/|@xenova\/|minisearch)/;

/** What the library and its packages may weigh, gzipped and minified. */
export const LIMIT_BYTES = 150_000;

/**
 * Bundles a module with its packages, minified; what it loads only when used (tfjs, a sandbox) is not counted.
 * @param {string} entry
 */
export async function gzipBytesOf(entry) {
  const { build } = await import('vite');
  const built = await build({
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
  });
  const [result] = [built].flat();
  if (!('output' in result)) throw new Error('Vite watches instead of building.');
  const chunks = new Map(
    result.output.flatMap((made) => (made.type === 'chunk' ? [/** @type {const} */ ([made.fileName, made])] : [])),
  );
  /** @type {Set<import('vite').Rolldown.OutputChunk>} */
  const loaded = new Set();
  const load = (/** @type {string} */ name) => {
    const chunk = chunks.get(name);
    if (!chunk || loaded.has(chunk)) return;
    loaded.add(chunk);
    chunk.imports.forEach(load);
  };
  for (const { isEntry, fileName } of chunks.values()) if (isEntry) load(fileName);
  return [...loaded].reduce((sum, { code }) => sum + gzipSync(code, { level: 9 }).length, 0);
}

/**
 * One line, and whether the limit is kept.
 * @param {string} entry
 */
export async function checkSize(entry) {
  const bytes = await gzipBytesOf(entry);
  const kilobytes = (/** @type {number} */ n) => (n / 1000).toFixed(1);
  const line = `library: ${kilobytes(bytes)} kB gzip, minified, its packages included; limit ${kilobytes(LIMIT_BYTES)} kB`;
  return { line, ok: bytes <= LIMIT_BYTES };
}
