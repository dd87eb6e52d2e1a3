/** Finds the nats-server program. Plain JavaScript, because the set-up of a checkout runs it before anything is built. */

import { existsSync } from 'node:fs';
import { posix, win32 } from 'node:path';

/**
 * Returns the path of nats-server on PATH or in the usual folders; '' if not found.
 * @param {{ platform?: NodeJS.Platform, env?: NodeJS.ProcessEnv, exists?: (path: string) => boolean }} [system]
 */
export function natsServerPath({ platform = process.platform, env = process.env, exists = existsSync } = {}) {
  const { delimiter, join } = platform === 'win32' ? win32 : posix;
  const usual = platform === 'win32' ? [] : ['/usr/sbin', '/usr/local/sbin', '/usr/local/bin', '/opt/homebrew/bin'];
  const folders = [...(env.PATH ?? env.Path ?? '').split(delimiter).filter(Boolean), ...usual];
  const file = platform === 'win32' ? 'nats-server.exe' : 'nats-server';
  return folders.map((folder) => join(folder, file)).find(exists) ?? '';
}
