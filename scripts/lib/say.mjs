/** Helpers of every set-up script: one line a finding on standard error, and failures that say what to do. */

import { spawnSync } from 'node:child_process';

/**
 * Standard output stays free for `--json`.
 * @param {string} line
 */
export function say(line) {
  process.stderr.write(`setup: ${line}\n`);
}

/** A failure the user can act on: shown without a stack. Exit code 2 where what the user gave is wrong, else 1. */
export class SetupError extends Error {
  /** @override */
  name = 'SetupError';

  /**
   * @param {string} message
   * @param {1 | 2} exitCode
   */
  constructor(message, exitCode = 2) {
    super(message);
    this.exitCode = exitCode;
  }
}

/**
 * Runs a command with its output on standard error, errors too unless told. Returns whether it succeeded.
 * @param {string} command
 * @param {string[]} args
 * @param {{ env?: Record<string, string>, errors?: boolean }} options
 */
export function runLoud(command, args, { env = {}, errors = true } = {}) {
  const { status } = spawnSync(command, args, {
    stdio: ['ignore', 2, errors ? 2 : 'ignore'],
    env: { ...process.env, ...env },
    shell: needsShell(command),
  });
  return status === 0;
}

/**
 * True for npm, npx and programs of node_modules/.bin on Windows: there they are scripts that only a shell starts.
 * @param {string} command
 * @param {NodeJS.Platform} [platform]
 */
export const needsShell = (command, platform = process.platform) =>
  platform === 'win32' && command !== process.execPath && !command.endsWith('.exe');

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Ends the process with the message of a SetupError; anything else is our bug and keeps its stack.
 * @param {unknown} error
 * @returns {never}
 */
export function exitOnSetupError(error) {
  if (!(error instanceof SetupError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(error.exitCode);
}
