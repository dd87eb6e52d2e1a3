/** Runs a bundled program as a child, so that the driver's environment is there when its process starts. */

import { spawn } from 'node:child_process';
import { constants } from 'node:os';

/** Signals that are sent on purpose, besides Ctrl-C.
 * @type {NodeJS.Signals[]} */
const SENT = ['SIGTERM', 'SIGHUP'];

/**
 * Resolves to the exit code; 128 + its number where a signal ended the child. Ctrl-C reaches the child by itself, and a closed terminal
 * too; this process waits for what it makes of it. What is sent to this process alone is handed on: the child takes the two for one.
 * @param {string} file
 * @param {string[]} args
 * @param {{ env?: Record<string, string>, cwd?: string }} options
 * @returns {Promise<number>}
 */
export function runNode(file, args, { env = {}, cwd = process.cwd() } = {}) {
  const child = spawn(process.execPath, ['--enable-source-maps', '--no-warnings', file, ...args], {
    stdio: 'inherit',
    cwd,
    env: { ...process.env, ...env },
  });
  process.on('SIGINT', () => {});
  for (const signal of SENT) process.on(signal, () => child.kill(signal));
  process.stderr.on('error', () => {}); // of a terminal that was closed
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      if (signal && signal !== 'SIGINT' && !SENT.includes(signal))
        process.stderr.write(`The process ended by ${signal}.\n`);
      resolve(code ?? 128 + (signal ? constants.signals[signal] : 0));
    });
  });
}
