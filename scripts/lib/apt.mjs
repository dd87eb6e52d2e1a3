/** Runs apt-get on a Debian system, as root or by sudo without a password. */

import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runLoud } from './say.mjs';

/**
 * Runs a command as root. Fails if sudo would ask for a password.
 * @param {...string} words
 * @returns {boolean} true if it succeeded
 */
export function asRoot(...words) {
  const sudo = process.getuid?.() === 0 ? [] : ['sudo', '-n'];
  const [command, ...rest] = [...sudo, 'env', 'DEBIAN_FRONTEND=noninteractive', ...words];
  return runLoud(command, rest);
}

/**
 * Installs packages; updates apt's package lists first if they are old or missing. Returns true if it succeeded.
 * @param {...string} packages
 */
export function aptInstall(...packages) {
  const install = () => asRoot('apt-get', 'install', '-y', '--no-install-recommends', ...packages);
  return install() || (asRoot('apt-get', 'update') && install());
}

const SOURCES = ['/etc/apt/sources.list.d/debian.sources', '/etc/apt/sources.list'];

/**
 * Installs packages from Debian 12's backports. The system's own list of sources stays unchanged. Returns true if it succeeded.
 * @param {...string} packages
 */
export function aptInstallFromBackports(...packages) {
  const { stdout = '' } = spawnSync('apt-get', ['indextargets', '--format', '$(SITE) $(CODENAME)'], {
    encoding: 'utf8',
  });
  const site = stdout
    .split('\n')
    .find((line) => line.endsWith(' bookworm'))
    ?.split(' ')[0];
  const own = SOURCES.find((path) => existsSync(path));
  if (!site || !own) return false;
  const folder = mkdtempSync(join(tmpdir(), 'webgrpo-apt-'));
  try {
    mkdirSync(join(folder, 'lists', 'partial'), { recursive: true });
    copyFileSync(own, join(folder, own.endsWith('.list') ? 'own.list' : 'own.sources'));
    const keys = '/usr/share/keyrings/debian-archive-keyring.gpg';
    writeFileSync(join(folder, 'backports.list'), `deb [signed-by=${keys}] ${site} bookworm-backports main\n`);
    const options = [
      `Dir::Etc::sourceparts=${folder}`,
      'Dir::Etc::sourcelist=/dev/null',
      `Dir::State::lists=${join(folder, 'lists')}`,
    ].flatMap((option) => ['-o', option]);
    const install = ['install', '-y', '--no-install-recommends', '-t', 'bookworm-backports', ...packages];
    return asRoot('apt-get', ...options, 'update') && asRoot('apt-get', ...options, ...install);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
