/** The nats-server that tests of rooms start: found, or installed where apt-get is there. Without it those tests are skipped, loudly. */

import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { runLoud, say } from './say.mjs';

export function ensureNatsServer() {
  const folders = [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin', '/usr/local/sbin', '/usr/local/bin'];
  if (folders.some((folder) => existsSync(join(folder, 'nats-server')))) return;
  if (!existsSync('/usr/bin/apt-get'))
    return say('nats-server: NOT INSTALLED, and no apt-get here; tests of rooms are SKIPPED');
  say('nats-server: not installed; installing it with apt-get for the tests of rooms');
  const install = () => asRoot('apt-get', 'install', '-y', '--no-install-recommends', 'nats-server');
  // Lists that are old or not there yet name no package, or one that the mirror has no longer.
  if (!install() && !(asRoot('apt-get', 'update') && install()))
    return say('nats-server: apt-get FAILED; tests of rooms are SKIPPED');
  // Debian's package starts a service on port 4222; tests start servers of their own.
  if (existsSync('/run/systemd/system')) asRoot('systemctl', 'disable', '--now', 'nats-server');
}

/**
 * Fails where that would ask for a password.
 * @param {...string} words
 */
function asRoot(...words) {
  const [command, ...rest] = [
    ...(process.getuid?.() === 0 ? [] : ['sudo', '-n']),
    'env',
    'DEBIAN_FRONTEND=noninteractive',
    ...words,
  ];
  return runLoud(command, rest);
}
