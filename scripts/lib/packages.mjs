/**
 * Installs the locked packages if they are missing or stale. A run needs a sixth of them: the package's own dependencies and those of the
 * workspace scripts/. The rest, for tests, linters and the benchmark's peers, are devDependencies of the root.
 */

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { runLoud, say, SetupError } from './say.mjs';

/** Versions of Node that the locked Vite supports. */
const NODE = '20.19 or newer of Node 20, or 22.12 or newer';

/** @param {string} version */
export function takesNode(version) {
  const [major, minor] = version.split('.').map(Number);
  return major === 20 ? minor >= 19 : major === 22 ? minor >= 12 : major > 22;
}

/**
 * Throws SetupError if Node is too old or the install fails.
 * @param {string} root
 * @param {{ dev: boolean }} which dev: true = also packages for tests and benchmarks
 */
export function ensurePackages(root, { dev }) {
  const { node } = process.versions;
  if (!takesNode(node)) throw new SetupError(`Node ${node} is not supported. Install Node ${NODE}.`);
  const stale = stalePackage(root, { dev });
  if (!stale) {
    say(`packages: as locked (Node ${process.versions.node})`);
    return;
  }
  const scope = dev ? '--include=dev' : '--omit=dev';
  say(`packages: ${stale}; running npm ci ${scope}`);
  if (!runLoud('npm', ['ci', scope, '--ignore-scripts', '--no-audit', '--no-fund'])) {
    throw new SetupError('npm ci failed (its output is above). Check the network or registry, then start again.');
  }
}

/**
 * Compares the lock file with npm's own record of what it installed, which cannot be outdated. Returns the stale package, or '' if none is.
 * @param {string} root
 * @param {{ dev: boolean }} which
 */
export function stalePackage(root, which) {
  const recordFile = join(root, 'node_modules', '.package-lock.json');
  if (!existsSync(recordFile)) return 'not installed';
  const [locked, installed] = [packagesOf(join(root, 'package-lock.json')), packagesOf(recordFile)];
  for (const [path, { version, dev, optional, devOptional, link }] of Object.entries(locked)) {
    // An optional package can be for another system, so it may be missing.
    if (path === '' || optional || devOptional || link || (dev && !which.dev)) continue;
    const found = installed[path]?.version;
    if (found !== version)
      return `${path.replace(/^.*node_modules\//, '')} is ${found ?? 'missing'}, locked ${version}`;
  }
  return '';
}

/** @typedef {{ version: string, dev?: boolean, optional?: boolean, devOptional?: boolean, link?: boolean }} LockedPackage */

/**
 * @param {string} lockFile
 * @returns {Record<string, LockedPackage>} by folder
 */
const packagesOf = (lockFile) => JSON.parse(readFileSync(lockFile, 'utf8')).packages;
