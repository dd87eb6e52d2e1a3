/** Builds the benchmark's page, serves it with its additional files, and opens it in a separate Chromium. */

import { createReadStream, existsSync, mkdirSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { webGpuLaunchOptions } from '../../src/cli/chromium.mjs';
import { say } from './say.mjs';

/** @type {Record<string, string>} */
const TYPES = {
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};
/** Headers that let a page share memory between threads, which ONNX Runtime's wasm provider needs. */
const ISOLATED = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };

/**
 * Builds and serves the page. Returns its address, its folder and `close`.
 * @param {string} root
 */
export async function serveBenchPage(root) {
  const page = await buildPage(root);
  const ort = join(root, 'node_modules', 'onnxruntime-web', 'dist');
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url ?? '/', 'http://page').pathname));
    const file = path.startsWith('/ort/') ? join(ort, path.slice(5)) : join(page, path === '/' ? 'index.html' : path);
    if (!existsSync(file) || !statSync(file).isFile()) {
      response.writeHead(404, ISOLATED).end();
      return;
    }
    const type = TYPES[extname(file)] ?? 'application/octet-stream';
    response.writeHead(200, { 'content-type': type, ...ISOLATED });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  const close = () => server.close();
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { address: `http://127.0.0.1:${port}/`, folder: page, close };
}

/** @param {string} root */
async function buildPage(root) {
  const folder = join(root, 'node_modules', '.cache', 'webgrpo', `bench-page-${process.pid}`);
  mkdirSync(folder, { recursive: true });
  const started = performance.now();
  const { build } = await import('vite');
  await build({
    configFile: false,
    root: join(root, 'bench', 'page'),
    base: './',
    logLevel: 'error',
    build: { outDir: folder, emptyOutDir: true, target: 'es2023', chunkSizeWarningLimit: Infinity },
  });
  say(`page: built in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return folder;
}

/**
 * Opens the page in a separate browser process and runs `work` with it.
 * @template T
 * @param {string} address
 * @param {Record<string, Function>} hostFunctions functions that the page can call
 * @param {(page: import('playwright').Page) => Promise<T>} work
 */
export async function withPage(address, hostFunctions, work) {
  const { chromium } = await import('playwright');
  const browser = await chromium.launch(webGpuLaunchOptions());
  try {
    const page = await browser.newPage();
    page.on('pageerror', (error) => process.stderr.write(`page: ${error.message}\n`));
    for (const [name, f] of Object.entries(hostFunctions)) await page.exposeFunction(name, f);
    await page.goto(address);
    await page.waitForFunction(() => globalThis.bench !== undefined);
    return await work(page);
  } finally {
    await browser.close();
  }
}
