/** Runs a bundled program as a child, so that the driver's environment is there when its process starts. */

import { spawn } from 'node:child_process';

/**
 * Resolves to the exit code. Ctrl-C reaches the child by itself; this process waits for what it makes of it.
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
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('exit', (code, signal) => {
      if (signal) process.stderr.write(`The process ended by ${signal}.\n`);
      resolve(code ?? 1);
    });
  });
}
