/**
 * `--mode scripted`: the page with the scripted engine in its worker, and with an adapter that needs no GPU. `vite build --mode scripted`
 * writes it into a folder of its own, for the page's tests; no other mode has any of it.
 */

import { resolve } from 'node:path';
import type { Connect, Plugin } from 'vite';

const WORKER = resolve('demo/engine/engine.worker.ts');
const SCRIPTED = resolve('test/scripted/engine.worker.ts');

/** Replaces the browser's adapter; a promise that a test puts at `adapterFound` answers instead. */
const ADAPTER = `if (navigator.gpu) GPU.prototype.requestAdapter = async () => {
  if (!(await (globalThis.adapterFound ?? true))) return null;
  const info = { vendor: '', architecture: '', description: 'scripted', isFallbackAdapter: true };
  return { info, limits: { maxBufferSize: 2 ** 31, maxStorageBufferBindingSize: 2 ** 30 }, features: new Set() };
};`;

/** Sends the engine's questions to the server of a test, if its browser has the cookie of one; otherwise nothing is held. */
const answer: Connect.SimpleHandleFunction = ({ headers, url }, response) => {
  const port = /\bgate=(\d+)/.exec(headers.cookie ?? '')?.[1];
  if (port === undefined) response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
  else response.writeHead(307, { location: `http://127.0.0.1:${port}${url}` }).end();
};

const scriptedWorker = (): Plugin => ({
  name: 'scripted-worker',
  enforce: 'pre',
  load: (id) => (id.split('?')[0] === WORKER ? `import ${JSON.stringify(SCRIPTED)};` : null),
});

/** The plugins of the mode; none in another. */
export function scriptedPage(mode: string): Plugin[] {
  if (mode !== 'scripted') return [];
  const page: Plugin = {
    name: 'scripted-page',
    config: () => ({
      build: { outDir: resolve('node_modules/.cache/webgrpo/scripted-page'), minify: false },
      worker: { plugins: () => [scriptedWorker()] },
    }),
    transformIndexHtml: { order: 'pre', handler: () => [{ tag: 'script', children: ADAPTER, injectTo: 'head' }] },
    configureServer: ({ middlewares }) => void middlewares.use('/scripted-engine', answer),
    configurePreviewServer: ({ middlewares }) => void middlewares.use('/scripted-engine', answer),
  };
  return [scriptedWorker(), page];
}
