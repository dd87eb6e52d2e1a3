/** Runs a bundled program as a child process, so that the driver's environment is set when its process starts. */

import { spawn } from 'node:child_process';
import { constants } from 'node:os';

/**
 * Signals that users send to a process, in addition to Ctrl-C.
 * @type {NodeJS.Signals[]}
 */
const SENT = ['SIGTERM', 'SIGHUP'];

/**
 * Resolves to the exit code, or 128 + the number of the signal that ended the child. The terminal sends Ctrl-C and its own closing to the
 * child too, so this process only waits. A signal that is sent to this process alone is forwarded. If a signal reaches the child both ways,
 * the child counts it once.
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
  process.stderr.on('error', () => {}); // the terminal was closed
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      if (signal && signal !== 'SIGINT' && !SENT.includes(signal))
        process.stderr.write(`The process ended by ${signal}.\n`);
      resolve(code ?? 128 + (signal ? constants.signals[signal] : 0));
    });
  });
}
