/** Bundles TypeScript with its WGSL for Node if its sources have changed. Bundles are stored by a hash of the sources. */

import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { say } from './say.mjs';

const SOURCES = ['src', 'kernels', 'bench', 'campaign', 'scripts/lib', 'vite.cli.config.ts', 'package-lock.json'];

/**
 * Returns the folder with `<entry>.js` of every entry in vite.cli.config.ts. Content-addressed, so a running process keeps its own files
 * while another start builds newer ones.
 * @param {string} root
 */
export async function bundle(root) {
  const cache = join(root, 'node_modules', '.cache', 'webgrpo');
  const name = `bundle-${stamp(root)}`;
  const folder = join(cache, name);
  if (existsSync(folder)) return folder;
  const started = performance.now();
  const temporary = join(cache, `building-${process.pid}`);
  mkdirSync(cache, { recursive: true });
  const { build } = await import('vite');
  await build({ configFile: join(root, 'vite.cli.config.ts'), root, logLevel: 'error', build: { outDir: temporary } });
  if (existsSync(folder)) rmSync(temporary, { recursive: true });
  else renameSync(temporary, folder);
  dropOld(cache, name);
  say(`bundle: built in ${((performance.now() - started) / 1000).toFixed(1)} s`);
  return folder;
}

/**
 * Returns a hash over paths, sizes and times of change, which avoids reading the contents.
 * @param {string} root
 */
function stamp(root) {
  const hash = createHash('sha256');
  const add = (/** @type {string} */ path) => {
    const { mtimeMs, size } = statSync(path);
    hash.update(`${path}:${size}:${mtimeMs}\n`);
  };
  for (const source of SOURCES.map((name) => join(root, name)).filter((path) => existsSync(path))) {
    if (!statSync(source).isDirectory()) add(source);
    else
      for (const entry of readdirSync(source, { recursive: true, withFileTypes: true }))
        if (entry.isFile()) add(join(entry.parentPath, entry.name));
  }
  return hash.digest('hex').slice(0, 16);
}

/**
 * Keeps the current bundle and the two newest others, because other processes may still be running them.
 * @param {string} cache
 * @param {string} current
 */
function dropOld(cache, current) {
  const bundles = readdirSync(cache).filter((name) => name.startsWith('bundle-') && name !== current);
  const age = (/** @type {string} */ name) => statSync(join(cache, name)).mtimeMs;
  bundles.sort((a, b) => age(b) - age(a));
  for (const name of bundles.slice(2)) rmSync(join(cache, name), { recursive: true, force: true });
}
