/** The nats-server that tests of rooms start. */

import { existsSync } from 'node:fs';
import { natsServerPath } from '../../src/cli/room/natsServerPath.mjs';
import { aptInstall, asRoot } from './apt.mjs';
import { thisSystem } from './requirements.mjs';
import { say } from './say.mjs';

/** Returns true if a nats-server is installed. Otherwise tries to install one with apt-get. */
export function ensureNatsServer({ hasApt } = thisSystem()) {
  if (natsServerPath()) return true;
  if (!hasApt) return false;
  say('nats-server: not installed; installing it with apt-get for the tests of rooms');
  if (!aptInstall('nats-server')) return false;
  // Debian's package starts a service on port 4222. Stop it, because tests start their own servers.
  if (existsSync('/run/systemd/system')) asRoot('systemctl', 'disable', '--now', 'nats-server');
  return natsServerPath() !== '';
}
