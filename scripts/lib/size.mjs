/** Sizes of what people download, gzipped: the page by route, and the library with its packages, each built as it is shipped. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { inline } from './inline.mjs';

/** What each weighed when the limits were set, and 10%. */
const LIMIT_BYTES = { 'page, first paint': 161_000, 'page, engine worker': 90_500, library: 180_000 };

const LOADED_WHEN_USED = /^(@tensorflow\/|@xenova\/|minisearch)/;

const gzipBytes = (text) => gzipSync(text, { level: 9 }).length;

/** Files of the page that lies in `folder`, by name, or of one that is built now. */
export async function pageFiles(folder) {
  if (folder) {
    const files = readdirSync(folder, { recursive: true }).filter((file) => /\.(html|js|css)$/.test(file));
    return new Map(files.map((file) => [file, readFileSync(join(folder, file), 'utf8')]));
  }
  const { build } = await import('vite');
  const result = await build({ logLevel: 'silent', build: { write: false } });
  return new Map([result].flat()[0].output.map(({ fileName, code, source }) => [fileName, code ?? `${source}`]));
}

/** Bytes of `entries` and of all that they import when they load. What is imported later is not counted. */
function routeBytes(files, entries) {
  const loaded = new Set();
  const load = (name) => {
    if (loaded.has(name) || !files.has(name)) return;
    loaded.add(name);
    for (const [, file] of files.get(name).matchAll(/\b(?:import|from)\s*["']\.\/([^"']+\.js)["']/g))
      load(`assets/${file}`);
  };
  entries.forEach(load);
  return [...loaded].reduce((sum, name) => sum + gzipBytes(files.get(name)), 0);
}

function pageBytes(files) {
  const inHtml = [...files.get('index.html').matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)].map(([, file]) => file);
  const worker = [...files.keys()].filter((name) => /^assets\/engine\.worker-[^/]+\.js$/.test(name));
  if (inHtml.length < 2 || worker.length !== 1)
    throw new Error('The page was not built as scripts/lib/size.mjs expects.');
  return {
    'page, first paint': routeBytes(files, ['index.html', ...inHtml]),
    'page, engine worker': routeBytes(files, worker),
  };
}

/** Bundles a module with its packages, minified; what it loads only when used (tfjs, a sandbox) is not counted. */
export async function gzipBytesOf(entry) {
  const { build } = await import('vite');
  const { output } = await build({
    configFile: false,
    logLevel: 'silent',
    plugins: [inline()],
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
  return [...loaded].reduce((sum, name) => sum + gzipBytes(chunks.get(name).code), 0);
}

/** A line for each size, and whether all limits are kept. `page`: a folder it was built into. */
export async function checkSizes({ library, page }) {
  const sizes = { ...pageBytes(await pageFiles(page)), library: await gzipBytesOf(library) };
  const kilobytes = (n) => (n / 1000).toFixed(1);
  const lines = Object.entries(sizes).map(
    ([name, bytes]) => `${name}: ${kilobytes(bytes)} kB gzip; limit ${kilobytes(LIMIT_BYTES[name])} kB`,
  );
  return { lines, ok: Object.entries(sizes).every(([name, bytes]) => bytes <= LIMIT_BYTES[name]) };
}
