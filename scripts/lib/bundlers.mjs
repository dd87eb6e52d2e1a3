/**
 * Builds test/e2e/bundled, a page that trains with the installed package, with bundlers in their default settings, as their guides
 * describe.
 */

import { execFileSync } from 'node:child_process';
import { createReadStream, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { needsShell } from './say.mjs';

/**
 * @typedef {object} Bundler
 * @property {string[]} packages to install, in npm's notation
 * @property {string} worker JavaScript that starts the engine's worker
 * @property {string[]} command a package's script and its arguments, run by Node
 * @property {Record<string, string>} [files] configuration, by path
 * @property {string} [out] folder that is served; default: dist
 */

const MODULE_WORKER = "new Worker(new URL('./engine.worker.js', import.meta.url), { type: 'module' })";
/** For bundlers that cannot bundle workers: the worker's script is a second entry. */
const SECOND_ENTRY = "new Worker('./engine.worker.js', { type: 'module' })";

const ENTRIES = "{ main: './src/main.js', 'engine.worker': './src/engine.worker.js' }";
const ROLLUP = `import resolve from '@rollup/plugin-node-resolve';
export default {
  input: ${ENTRIES},
  output: { dir: 'dist', format: 'es' },
  plugins: [resolve({ browser: true })],
  onwarn: (warning) => { throw new Error(warning.message); },
};
`;
const WEBPACK = `import { resolve } from 'node:path';
export default { mode: 'production', entry: './src/main.js', output: { path: resolve('dist') }, performance: false };
`;
const ESBUILD = ['--bundle', '--format=esm', '--splitting', '--outdir=dist', '--log-level=warning'];
const VITE_PAGE = '<!doctype html><body><script type="module" src="/src/main.js"></script></body>\n';
const NEXT_LAYOUT =
  'export default ({ children }) => <html lang="en"><head><title>next</title></head><body>{children}</body></html>;\n';
// Next.js first renders the page on its server, so the package must load in Node too.
const NEXT_PAGE = `'use client';
import { useEffect } from 'react';
import { resolveTrainConfig } from 'webgrpo';
export default function Page() {
  useEffect(() => void import('../src/main.js'), []);
  return <p>{resolveTrainConfig({ name: 'x', model: { path: 'x' } }).name}</p>;
}
`;

/** @type {Record<string, Bundler>} */
export const BUNDLERS = {
  vite: {
    packages: ['vite@8'],
    worker: MODULE_WORKER,
    command: ['vite/bin/vite.js', 'build', '--logLevel', 'warn'],
    files: { 'index.html': VITE_PAGE },
  },
  webpack: {
    packages: ['webpack@5', 'webpack-cli@7'],
    worker: MODULE_WORKER,
    command: ['webpack-cli/bin/cli.js', '--fail-on-warnings'],
    files: { 'webpack.config.mjs': WEBPACK },
  },
  next: {
    packages: ['next@16', 'react@19', 'react-dom@19'],
    worker: MODULE_WORKER,
    command: ['next/dist/bin/next', 'build'],
    files: {
      'next.config.mjs': "export default { output: 'export' };\n",
      'app/layout.jsx': NEXT_LAYOUT,
      'app/page.jsx': NEXT_PAGE,
    },
    out: 'out',
  },
  esbuild: {
    packages: ['esbuild@0.28'],
    worker: SECOND_ENTRY,
    command: ['esbuild/bin/esbuild', 'src/main.js', 'src/engine.worker.js', ...ESBUILD],
  },
  rollup: {
    packages: ['rollup@4', '@rollup/plugin-node-resolve@16'],
    worker: SECOND_ENTRY,
    command: ['rollup/dist/bin/rollup', '--config', 'rollup.config.mjs', '--silent'],
    files: { 'rollup.config.mjs': ROLLUP },
  },
};

/**
 * Creates a project with the test page, the tarball of webgrpo, and the bundler's packages.
 * @param {{ root: string, folder: string, tarball: string, packages: string[] }} options
 */
export function installProject({ root, folder, tarball, packages }) {
  mkdirSync(join(folder, 'src'), { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{ "name": "empty", "private": true, "type": "module" }\n');
  writeFileSync(join(folder, 'src', 'engine.worker.js'), "import 'webgrpo/worker';\n");
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts'];
  run('npm', ['install', ...quiet, tarball, ...packages], folder);
  // The page is copied from the checkout, so that it cannot diverge from the source.
  const source = readFileSync(join(root, 'test', 'e2e', 'bundled', 'main.js'), 'utf8');
  writeFileSync(join(folder, 'main.source.js'), source);
}

/**
 * Builds the page in a project that `installProject` created. Returns the folder to serve. Throws with the bundler's output on an error,
 * and on a warning if the bundler can be configured for that.
 * @param {string} name
 * @param {string} folder
 * @param {string} [home] folder whose node_modules contains the bundler; default: `folder`
 */
export function buildWith(name, folder, home = folder) {
  const { worker, command, files = {}, out = 'dist' } = BUNDLERS[name];
  const source = readFileSync(join(folder, 'main.source.js'), 'utf8');
  const all = { ...files, 'src/main.js': source.replace('NEW_WORKER', worker) };
  for (const [path, text] of Object.entries(all)) {
    mkdirSync(join(folder, path, '..'), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  const [script, ...args] = command;
  run(process.execPath, [join(home, 'node_modules', script), ...args], folder);
  const served = join(folder, out);
  if (!existsSync(join(served, 'index.html')))
    writeFileSync(join(served, 'index.html'), '<!doctype html><script type="module" src="main.js"></script>\n');
  return served;
}

/** @param {string} command @param {string[]} args @param {string} cwd */
function run(command, args, cwd) {
  try {
    const shell = needsShell(command);
    execFileSync(command, args, { cwd, shell, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  } catch (error) {
    const { stdout, stderr } = /** @type {{ stdout: string, stderr: string }} */ (error);
    throw new Error(`${command} ${args.join(' ')} failed:\n${stdout}${stderr}`, { cause: error });
  }
}

/** Packs the built package into `folder`; returns the tarball. @param {string} root @param {string} folder */
export function pack(root, folder) {
  run('npm', ['pack', '--pack-destination', folder], root);
  return join(
    folder,
    /** @type {string} */ (readdirSync(folder).find((file) => file.endsWith('.tgz'))),
  );
}

/** @type {Record<string, string>} */
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.json': 'application/json', '.css': 'text/css' };

/**
 * Serves a folder like development servers do: requests for unknown paths get the page. Returns its address and `close`.
 * @param {string} folder
 */
export async function serveFolder(folder) {
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url ?? '/', 'http://page').pathname));
    const asked = join(folder, path);
    const file = existsSync(asked) && statSync(asked).isFile() ? asked : join(folder, 'index.html');
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    createReadStream(file).pipe(response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  return { address: `http://127.0.0.1:${port}/`, close: () => void server.close() };
}
