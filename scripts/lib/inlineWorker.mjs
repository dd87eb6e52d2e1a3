/** A worker as one string: it starts in a page and in Node alike, wherever a bundler moves the code around it. */

import { existsSync, readFileSync } from 'node:fs';

const SUFFIX = '?inline-worker';

/** Vite plugin: `import code from './x.ts?inline-worker'` is x.ts with its packages and files, bundled into a script's text. */
export function inlineWorker() {
  return {
    name: 'inline-worker',
    enforce: 'pre',
    async resolveId(source, importer) {
      if (!source.endsWith(SUFFIX)) return null;
      const found = await this.resolve(source.slice(0, -SUFFIX.length), importer);
      return found && found.id + SUFFIX;
    },
    async load(id) {
      if (!id.endsWith(SUFFIX)) return null;
      return `export default ${JSON.stringify(await bundle(id.slice(0, -SUFFIX.length)))};`;
    },
  };
}

/** Text has no address; and Vite would put a file in once more for each `new URL(file, import.meta.url)`. */
const noAddress = {
  name: 'no-address',
  enforce: 'pre',
  transform: (code) => code.replaceAll('import.meta.url', '"inline:"'),
};

async function bundle(entry) {
  const { build } = await import('vite');
  const results = await build({
    configFile: false,
    logLevel: 'error',
    plugins: [noAddress],
    build: {
      write: false,
      target: 'es2022',
      minify: true,
      assetsInlineLimit: 2 ** 24,
      modulePreload: false,
      lib: { entry, formats: ['iife'], name: 'worker', fileName: 'worker' },
      rolldownOptions: { output: { codeSplitting: false } },
    },
  });
  const { output } = [results].flat()[0];
  const [{ code, moduleIds }] = output;
  return licences(moduleIds) + code;
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
