/**
 * SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first asks the run for a clean stop, which saves: the process ends with
 * STOPPED_EXIT_CODE. The second, or any while nothing is worth saving, ends it at once by that signal, which a shell calls 128 + its
 * number.
 */

import { constants } from 'node:os';

/** Of a run that was stopped and saved, so that whoever started it can tell it from one that is done, failed or was killed. */
export const STOPPED_EXIT_CODE = 3;

/** Ends the command line with STOPPED_EXIT_CODE and its message. */
export class StoppedError extends Error {
  override name = 'StoppedError';
}

/** For --help. */
export const STOPS =
  `Ctrl-C, SIGTERM and SIGHUP end the run after the step that it is in, save it, and exit with ${STOPPED_EXIT_CODE}; a second one ends it at once,\n` +
  "with 128 + the signal's number. One process at a time may write to a run folder.";

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** A signal to a process group comes twice where a parent (npm, scripts/webgrpo.mjs) hands its own on: within this it is one. */
const SAME_SIGNAL_MS = 300;

/** What a first signal asks; undefined where nothing is worth saving. */
let stopRun: (() => void) | undefined;
let askedAt = -Infinity;
let listens = false;

/** From now on what listens to the process's end (a lock) is done when a signal ends it. */
export function exitOnSignals(): void {
  if (listens) return;
  listens = true;
  for (const signal of SIGNALS) process.on(signal, () => handle(signal));
}

/** Calls `stop` on the first signal. Returns what makes signals end the process again. */
export function onInterrupt(stop: () => void): () => void {
  exitOnSignals();
  stopRun = stop;
  return () => {
    stopRun = undefined;
  };
}

function handle(signal: (typeof SIGNALS)[number]): void {
  const now = performance.now();
  if (now - askedAt < SAME_SIGNAL_MS) return;
  const stop = askedAt === -Infinity ? stopRun : undefined;
  askedAt = now;
  if (stop) stop();
  else endBy(signal);
}

/** Not by `process.exit`: that takes the driver apart under its own threads, which crash (SIGSEGV) where they compute. */
function endBy(signal: (typeof SIGNALS)[number]): void {
  process.emit('exit', 128 + constants.signals[signal]);
  process.removeAllListeners(signal); // so that it means to the system what it always does
  process.kill(process.pid, signal);
}
