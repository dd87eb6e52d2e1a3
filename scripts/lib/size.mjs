/** Measures the gzipped sizes of downloads: the page by route, and the library with its packages, built as shipped. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { inline } from './inline.mjs';

/** Maximum number of bytes that a page can load before Start. Other sizes are only reported (docs/decisions/size.md). */
const FIRST_PAINT_LIMIT = 200_000;

/** Maximum number of bytes that a lesson can load before its figures are drawn. */
const LESSON_LIMIT = 120_000;

const LOADED_WHEN_USED = /^(@tensorflow\/|@xenova\/|minisearch)/;

/** @param {string} text */
const gzipBytes = (text) => gzipSync(text, { level: 9 }).length;

/**
 * Returns the page's files in `folder` by name. Without a folder, builds the page first.
 * @param {string} [folder]
 */
export async function pageFiles(folder) {
  if (!folder) {
    const made = mkdtempSync(join(tmpdir(), 'webgrpo-page-'));
    try {
      const { build } = await import('vite');
      await build({ logLevel: 'silent', build: { outDir: made, emptyOutDir: true } });
      return await pageFiles(made);
    } finally {
      rmSync(made, { recursive: true });
    }
  }
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.(html|js|css)$/.test(file),
  );
  return new Map(files.map((file) => [file, readFileSync(join(folder, file), 'utf8')]));
}

/**
 * Returns the bytes of `entries` and of everything that they import statically. Dynamic imports are not counted.
 * @param {Map<string, string>} files
 * @param {string[]} entries
 */
function routeBytes(files, entries) {
  /** @type {Set<string>} */
  const loaded = new Set();
  const load = (/** @type {string} */ name) => {
    if (loaded.has(name)) return;
    loaded.add(name);
    if (name.endsWith('.html')) return; // it can show a program that imports files
    for (const [, file] of textOf(files, name).matchAll(/\b(?:import|from)\s*["']\.\/([^"']+\.js)["']/g))
      load(`assets/${file}`);
  };
  entries.forEach(load);
  return [...loaded].reduce((sum, name) => sum + gzipBytes(textOf(files, name)), 0);
}

/**
 * @param {Map<string, string>} files
 * @param {string} name
 */
function textOf(files, name) {
  const text = files.get(name);
  if (text === undefined)
    throw new Error(`The page has no ${name}; scripts/lib/size.mjs does not know how it was built.`);
  return text;
}

/**
 * Returns the files that a page's HTML loads.
 * @param {Map<string, string>} files
 * @param {string} html
 */
const filesOf = (files, html) =>
  [...textOf(files, html).matchAll(/(?:src|href)="(?:\.\/|(?:\.\.\/)+)(assets\/[^"]+)"/g)].map(([, file]) => file);

/** @param {Map<string, string>} files */
function pageBytes(files) {
  const inHtml = filesOf(files, 'index.html');
  const worker = [...files.keys()].filter((name) => /^assets\/engine\.worker-[^/]+\.js$/.test(name));
  if (inHtml.length < 2 || worker.length !== 1)
    throw new Error('The page was not built as scripts/lib/size.mjs expects.');
  return {
    'page, first paint': routeBytes(files, ['index.html', ...inHtml]),
    'page, engine worker': routeBytes(files, worker),
    ...Object.fromEntries(
      [...files.keys()]
        .filter((name) => /^lessons\/.*\bindex\.html$/.test(name))
        .map((html) => [
          `lesson ${html.split('/').at(-2)}, first paint`,
          routeBytes(files, [html, ...filesOf(files, html)]),
        ]),
    ),
  };
}

/**
 * Returns the bytes of a module bundled with its packages, minified. Code that is loaded on use (tfjs, a sandbox) is not counted.
 * @param {string} entry
 */
export async function gzipBytesOf(entry) {
  const { build } = await import('vite');
  const built = await build({
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
  return [...loaded].reduce((sum, chunk) => sum + gzipBytes(chunk.code), 0);
}

/**
 * Returns a line of text for each size, and true if all sizes are within their limits.
 * @param {{ library: string, page?: string }} built the library's entry, and the folder of the built page
 */
export async function checkSizes({ library, page }) {
  const sizes = { ...pageBytes(await pageFiles(page)), library: await gzipBytesOf(library) };
  const kilobytes = (/** @type {number} */ n) => (n / 1000).toFixed(1);
  const lines = Object.entries(sizes).map(([name, bytes]) => `${name}: ${kilobytes(bytes)} kB gzip`);
  return {
    lines: [
      ...lines,
      `page, first paint: at most ${kilobytes(FIRST_PAINT_LIMIT)} kB`,
      `each lesson, first paint: at most ${kilobytes(LESSON_LIMIT)} kB`,
    ],
    ok:
      sizes['page, first paint'] <= FIRST_PAINT_LIMIT &&
      Object.entries(sizes).every(([name, bytes]) => !name.startsWith('lesson ') || bytes <= LESSON_LIMIT),
  };
}
