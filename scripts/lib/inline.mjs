/**
 * Vite plugin that imports bundled code as a string: workers, which then start in a page and in Node alike, and pages that consist of one
 * file.
 */

import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { withReportPolicy } from './contentPolicy.mjs';

/** @typedef {import('vite').InlineConfig} InlineConfig */

/**
 * Maps the query of an import, such as `?inline-worker`, to the function that returns the bundled text of the file.
 * @type {Record<string, (file: string) => Promise<string>>}
 */
const BUNDLERS = { '?inline-worker': bundleWorker, '?inline-page': bundlePage };

/**
 * Vite plugin. `import code from './x.ts?inline-worker'` returns x.ts bundled with its packages and files as the text of a script. `import
 * html from './x.html?inline-page'` returns x.html with its scripts and styles embedded.
 * @returns {import('vite').Plugin}
 */
export function inline() {
  const suffixOf = (/** @type {string} */ id) => Object.keys(BUNDLERS).find((suffix) => id.endsWith(suffix));
  return {
    name: 'inline',
    enforce: 'pre',
    // A bundle depends on more files than Vitest's cache of modules looks at.
    configureVitest: (/** @type {import('vitest/node').VitestPluginContext} */ vitest) =>
      vitest.experimental_defineCacheKeyGenerator(({ id }) => (suffixOf(id) === undefined ? undefined : false)),
    async resolveId(source, importer) {
      const suffix = suffixOf(source);
      if (suffix === undefined) return null;
      const found = await this.resolve(source.slice(0, -suffix.length), importer);
      return found && found.id + suffix;
    },
    async load(id) {
      const suffix = suffixOf(id);
      if (suffix === undefined) return null;
      return `export default ${JSON.stringify(await BUNDLERS[suffix](id.slice(0, -suffix.length)))};`;
    },
  };
}

/**
 * Options that the builds of workers and of pages share; nothing is written to disk.
 * @type {import('vite').BuildOptions}
 */
const COMMON = {
  write: false,
  target: 'es2022',
  minify: true,
  assetsInlineLimit: 2 ** 24,
  modulePreload: false,
};

/**
 * Removes import.meta.url, because a script that is started from text has no address. Vite would also embed a file again for each `new
 * URL(file, import.meta.url)`.
 * @type {import('vite').Plugin}
 */
const noAddress = {
  name: 'no-address',
  enforce: 'pre',
  transform: (code) => code.replaceAll('import.meta.url', '"inline:"'),
};

/** @param {string} entry */
async function bundleWorker(entry) {
  const output = await outputOf({
    plugins: [noAddress],
    build: {
      ...COMMON,
      lib: { entry, formats: ['iife'], name: 'worker', fileName: 'worker' },
      rolldownOptions: { output: { codeSplitting: false } },
    },
  });
  return scriptOf(output[0]);
}

/**
 * Bundles a page as one text, which needs no other file.
 * @param {string} file
 * @param {{ plugins?: import('vite').PluginOption[], policy?: (html: string) => string }} options
 */
export async function bundlePage(file, { plugins = [], policy = withReportPolicy } = {}) {
  const output = await outputOf({
    plugins,
    root: dirname(file),
    base: './',
    publicDir: false,
    build: { ...COMMON, rolldownOptions: { input: file, output: { codeSplitting: false } } },
  });
  /** @param {string} path */
  const textOf = (path) => {
    const made = output.find(({ fileName }) => fileName === path);
    return made?.type === 'asset' ? String(made.source) : scriptOf(made);
  };
  const page = textOf(basename(file))
    .replace(/<script type="module"[^>]* src="\.\/([^"]+)"><\/script>/, (_, path) => {
      // The embedded script must not contain `</script>`, which would end its element.
      return `<script type="module">${textOf(path).replaceAll('</script', '<\\/script')}</script>`;
    })
    .replace(/<link rel="stylesheet"[^>]* href="\.\/([^"]+)">/, (_, path) => `<style>${textOf(path)}</style>`);
  return policy(page);
}

/** @param {InlineConfig} config */
async function outputOf(config) {
  const { build } = await import('vite');
  const [result] = [await build({ configFile: false, logLevel: 'error', ...config })].flat();
  if ('output' in result) return result.output;
  throw new Error('Vite watches instead of building.');
}

/**
 * Returns a chunk's code, preceded by the licences of its packages.
 * @param {import('vite').Rolldown.OutputChunk | import('vite').Rolldown.OutputAsset | undefined} chunk
 */
function scriptOf(chunk) {
  if (chunk?.type !== 'chunk') throw new Error('Vite made no script.');
  return licences(chunk.moduleIds) + chunk.code;
}

/**
 * Returns the licence of every bundled package, as the licences require.
 * @param {string[]} moduleIds
 */
function licences(moduleIds) {
  const roots = moduleIds.map((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id)?.[0]);
  const files = [...new Set(roots)].flatMap((root) => (root === undefined ? [] : [`${root}/LICENSE`]));
  return files
    .filter((file) => existsSync(file))
    .map((file) => `/*!\n${readFileSync(file, 'utf8').trim()}\n*/\n`)
    .join('');
}
