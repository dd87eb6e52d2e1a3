/**
 * `--mode scripted`: the page with the scripted engine in its worker, and with an adapter that needs no GPU. `vite build --mode scripted`
 * writes it into a separate folder for the page's tests. Other modes contain none of it.
 */

import { resolve } from 'node:path';
import type { Connect, Plugin } from 'vite';

/** Worker scripts of the page, each with the scripted one that replaces it. */
const SCRIPTED: Readonly<Record<string, string>> = {
  [resolve('demo/engine/engine.worker.ts')]: resolve('test/scripted/engine.worker.ts'),
  [resolve('demo/lessons/kit/loopWorker.ts')]: resolve('test/scripted/loop.worker.ts'),
};

/**
 * Replaces the browser's GPU adapter, unless the cookie `engine=real` asks for the real engine. A test can delay or refuse the adapter with a
 * promise in `adapterFound`.
 */
const ADAPTER = `if (navigator.gpu && !document.cookie.includes('engine=real')) GPU.prototype.requestAdapter = async () => {
  if (!(await (globalThis.adapterFound ?? true))) return null;
  const info = { vendor: '', architecture: '', description: 'scripted', isFallbackAdapter: true };
  return { info, limits: { maxBufferSize: 2 ** 31, maxStorageBufferBindingSize: 2 ** 30 }, features: new Set() };
};`;

/**
 * Forwards the engine's requests to the gate server of a test, if the browser has the test's cookie. Without the cookie, the engine never
 * waits. The cookie `engine=real` is answered by `isReal`.
 */
const answer: Connect.SimpleHandleFunction = ({ headers, url }, response) => {
  const port = /\bgate=(\d+)/.exec(headers.cookie ?? '')?.[1];
  const isReal = /\bengine=real\b/.test(headers.cookie ?? '');
  if (port === undefined)
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ isReal }));
  else response.writeHead(307, { location: `http://127.0.0.1:${port}${url}` }).end();
};

/** Vite's preview server compresses every response again, for browsers on the same machine. */
const uncompressed: Connect.NextHandleFunction = ({ headers }, _, next) => {
  delete headers['accept-encoding'];
  next();
};

const scriptedWorker = (): Plugin => ({
  name: 'scripted-worker',
  enforce: 'pre',
  load: (id) => {
    const scripted = SCRIPTED[id.split('?')[0]];
    return scripted ? `import ${JSON.stringify(scripted)};` : null;
  },
});

/** Returns the Vite plugins of mode `scripted`; none in other modes. */
export function scriptedPage(mode: string): Plugin[] {
  if (mode !== 'scripted') return [];
  const page: Plugin = {
    name: 'scripted-page',
    config: () => ({
      // The tests of the package run `npm run build`, which deletes dist.
      build: { outDir: resolve('node_modules/.cache/webgrpo/scripted-page') },
      worker: { plugins: () => [scriptedWorker()] },
    }),
    transformIndexHtml: { order: 'pre', handler: () => [{ tag: 'script', children: ADAPTER, injectTo: 'head' }] },
    configureServer: ({ middlewares }) => void middlewares.use('/scripted-engine', answer),
    configurePreviewServer: ({ middlewares }) => void middlewares.use(uncompressed).use('/scripted-engine', answer),
  };
  return [scriptedWorker(), page];
}
