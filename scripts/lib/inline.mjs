/** Code as one string: workers, which then start in a page and in Node alike, and pages that need no file beside them. */

import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';

/** What stands behind the file's name in an import, and what makes its text. */
const BUNDLERS = { '?inline-worker': bundleWorker, '?inline-page': bundlePage };

/**
 * Vite plugin: `import code from './x.ts?inline-worker'` is x.ts with its packages and files, bundled into a script's text;
 * `import html from './x.html?inline-page'` is x.html with its scripts and styles in it.
 */
export function inline() {
  const suffixOf = (id) => Object.keys(BUNDLERS).find((suffix) => id.endsWith(suffix));
  return {
    name: 'inline',
    enforce: 'pre',
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

/** What both builds have in common; nothing is written. */
const COMMON = {
  write: false,
  target: 'es2022',
  minify: true,
  assetsInlineLimit: 2 ** 24,
  modulePreload: false,
};

/** Text has no address; and Vite would put a file in once more for each `new URL(file, import.meta.url)`. */
const noAddress = {
  name: 'no-address',
  enforce: 'pre',
  transform: (code) => code.replaceAll('import.meta.url', '"inline:"'),
};

async function bundleWorker(entry) {
  const [{ code, moduleIds }] = await outputOf({
    plugins: [noAddress],
    build: {
      ...COMMON,
      lib: { entry, formats: ['iife'], name: 'worker', fileName: 'worker' },
      rolldownOptions: { output: { codeSplitting: false } },
    },
  });
  return licences(moduleIds) + code;
}

async function bundlePage(file) {
  const output = await outputOf({
    root: dirname(file),
    base: './',
    build: { ...COMMON, rolldownOptions: { input: file, output: { codeSplitting: false } } },
  });
  const html = output.find(({ fileName }) => fileName === basename(file)).source;
  const named = (path) => output.find(({ fileName }) => fileName === path);
  return html
    .replace(/<script type="module"[^>]* src="\.\/([^"]+)"><\/script>/, (_, path) => {
      const { code, moduleIds } = named(path);
      // Neither may end the element that it stands in.
      return `<script type="module">${(licences(moduleIds) + code).replaceAll('</script', '<\\/script')}</script>`;
    })
    .replace(/<link rel="stylesheet"[^>]* href="\.\/([^"]+)">/, (_, path) => `<style>${named(path).source}</style>`);
}

async function outputOf(config) {
  const { build } = await import('vite');
  const results = await build({ configFile: false, logLevel: 'error', ...config });
  return [results].flat()[0].output;
}

/** The licence of every package that went in, as licences ask for. */
function licences(moduleIds) {
  const roots = moduleIds.map((id) => /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id)?.[0]);
  const files = [...new Set(roots)].filter(Boolean).map((root) => `${root}/LICENSE`);
  return files
    .filter((file) => existsSync(file))
    .map((file) => `/*!\n${readFileSync(file, 'utf8').trim()}\n*/\n`)
    .join('');
}
