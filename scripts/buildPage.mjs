/**
 * `npm run build:page`: builds the page for any static host into dist/page/ (relative addresses, so also in a sub-path), and the page in
 * one file, dist/webgrpo.html, which opens from a disk or a USB stick too. Each lesson becomes one file as well, dist/lessons/NAME/index.html. `-- --url https://...` is the page's future address: link
 * previews need a complete address of their picture.
 */

import { mkdirSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { withFilePolicy } from './lib/contentPolicy.mjs';
import { bundlePage, inline } from './lib/inline.mjs';
import { lessonPages, lessonStills } from './lib/lessons.mjs';
import { exitOnSetupError, say, SetupError } from './lib/say.mjs';
import { ROOT, setup } from './setup.mjs';

const DEMO = join(ROOT, 'demo');

/**
 * Vite plugin: makes the address of the link preview's picture absolute.
 * @param {string} address
 * @returns {import('vite').Plugin}
 */
function wholeAddress(address) {
  const at = new URL('preview.png', address.endsWith('/') ? address : `${address}/`).href;
  return {
    name: 'whole-address',
    transformIndexHtml: { order: 'post', handler: (html) => html.replace(/"(\.\/)?preview\.png"/, `"${at}"`) },
  };
}

/**
 * Source files that start a worker. `script`: the worker script that the file names. `text`: the source that is embedded as text instead.
 * @type {Record<string, { script: string, text: string }>}
 */
const WORKERS = {
  '/demo/engine/engineWorker.ts': { script: './engine.worker.ts', text: '../../src/engine.worker.ts' },
  '/demo/lessons/kit/loop.ts': { script: './loopWorker.ts', text: './loopWorker.ts' },
};

/**
 * Vite plugin: embeds workers as text, because a page opened from a file cannot load a worker script. Embeds a worker without tfjs, which
 * would be most of the text.
 * @returns {import('vite').Plugin}
 */
function workerAsText() {
  return {
    name: 'worker-as-text',
    enforce: 'pre',
    transform(code, id) {
      const found = Object.entries(WORKERS).find(([file]) => id.endsWith(file));
      if (!found) return null;
      const [, { script, text }] = found;
      const started = `new Worker(new URL('${script}', import.meta.url), { type: 'module' })`;
      if (!code.includes(started)) throw new Error(`buildPage.mjs looks for ${started} in ${id}.`);
      return (
        `import workerText from '${text}?inline-worker';\n` +
        code.replace(started, "new Worker(URL.createObjectURL(new Blob([workerText], { type: 'text/javascript' })))")
      );
    },
  };
}

/**
 * Builds the page for static hosts.
 * @param {string} folder
 * @param {string | undefined} url
 */
export async function buildFolder(folder, url) {
  const { build } = await import('vite');
  await build({
    configFile: join(ROOT, 'vite.config.ts'),
    logLevel: 'warn',
    plugins: url ? [wholeAddress(url)] : [],
    root: DEMO,
    build: { outDir: folder, emptyOutDir: true },
  });
}

/**
 * Builds a page for a disk: scripts, styles, recipes, models and recorded data in one HTML file.
 * @param {string} file
 * @param {string} [entry]
 */
export async function buildFile(file, entry = join(DEMO, 'index.html')) {
  const up = '../'.repeat(relative(DEMO, entry).split(/[\\/]/).length - 1);
  const main = `"${up}index.html`;
  const scripts = entry.includes('/lessons/') ? ' blob:' : ''; // the loops that readers of a lesson write
  const html = await bundlePage(entry, {
    plugins: [inline(), lessonStills(), workerAsText()],
    policy: (page) =>
      withFilePolicy(
        page
          // The main page that lessons link to is a single file too, with another name.
          .replaceAll(main, up === '' ? main : `"${up}webgrpo.html`)
          // Removes the script which says that modules need a server: this one file needs no server.
          .replace(/<script>[^]*?<\/script>/, '')
          .replace(/<meta\s+(property="og:|name="twitter:)[^>]*>\s*/g, ''),
        scripts,
      ),
  });
  mkdirSync(join(file, '..'), { recursive: true });
  writeFileSync(file, html);
  return html.length;
}

/** @param {string | undefined} url */
function checked(url) {
  if (url === undefined || (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol))) return url;
  throw new SetupError(
    `--url is "${url}". Give the address that the page will have, such as https://example.org/webgrpo/.`,
  );
}

try {
  const { values } = parseArgs({ options: { url: { type: 'string' }, out: { type: 'string', default: 'dist' } } });
  const url = checked(values.url);
  setup();
  const out = join(ROOT, values.out);
  await buildFolder(join(out, 'page'), url);
  say(`${values.out}/page/: for any static host`);
  const bytes = await buildFile(join(out, 'webgrpo.html'));
  say(`${values.out}/webgrpo.html: the page in one file, ${(bytes / 1e6).toFixed(1)} MB`);
  for (const entry of Object.values(lessonPages())) {
    const file = relative(DEMO, entry);
    const size = await buildFile(join(out, file), entry);
    say(`${join(values.out, file)}: in one file, ${(size / 1e6).toFixed(1)} MB`);
  }
} catch (error) {
  exitOnSetupError(error);
}
