/** Helpers of every set-up script: one line per finding on standard error, and failures that say what to do. */

import { spawnSync } from 'node:child_process';

/**
 * Prints a line on standard error, because standard output is for `--json`.
 * @param {string} line
 */
export function say(line) {
  process.stderr.write(`setup: ${line}\n`);
}

/** An error that the user can resolve. It is printed without a stack. Exit code 2 if the user's input is wrong, otherwise 1. */
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
 * Runs a command with its output on standard error, by default its errors too. Returns true if it succeeded.
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
 * True for npm, npx and programs of node_modules/.bin on Windows, which are scripts that only a shell can start.
 * @param {string} command
 * @param {NodeJS.Platform} [platform]
 */
export const needsShell = (command, platform = process.platform) =>
  platform === 'win32' && command !== process.execPath && !command.endsWith('.exe');

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Ends the process with the message of a SetupError, or of an argument that `parseArgs` does not know. Rethrows any other error, because
 * that is a bug in webgrpo, and its stack is needed.
 * @param {unknown} error
 * @returns {never}
 */
export function exitOnSetupError(error) {
  const isArgument = error instanceof TypeError && 'code' in error && /^ERR_PARSE_ARGS/.test(String(error.code));
  if (!(error instanceof SetupError) && !isArgument) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exit(error instanceof SetupError ? error.exitCode : 2);
}
