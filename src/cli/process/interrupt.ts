/**
 * Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first signal asks the run to stop cleanly and save; the process then
 * exits with STOPPED_EXIT_CODE. The second, or any while there is nothing to save, ends the process immediately by that signal. A shell
 * reports that as 128 + its number.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { currentIo, type Io, type Signal } from './io.ts';

/** Exit code of a run that was stopped and saved. Differs from the codes of finished, failed and killed runs. */
export const STOPPED_EXIT_CODE = 3;

/** Text about stopping in --help. */
export const STOPS =
  'Ctrl-C, SIGTERM and SIGHUP end the run after the current step, and an evaluation immediately. The run is saved, and the exit\n' +
  `code is ${STOPPED_EXIT_CODE}. A second signal ends the process immediately, with 128 + the number of the signal. Only one process at a time\n` +
  'can write to a run folder.';

/**
 * Milliseconds within which two signals count as one. A process group receives a signal twice if a parent (npm, scripts/webgrpo.mjs)
 * forwards its own.
 */
const SAME_SIGNAL_MS = 300;

interface Asked {
  /** Called on the first signal; undefined if there is nothing to save. */
  stopRun?: (() => void) | undefined;
  at: number;
}

const listening = new WeakMap<Io, Asked>();

/** Makes a signal run the listeners of the process's exit, such as the release of a lock. */
export function exitOnSignals(): Asked {
  const io = currentIo();
  const known = listening.get(io);
  if (known) return known;
  const asked: Asked = { at: -Infinity };
  listening.set(io, asked);
  io.onSignal((signal) => handle(io, asked, signal));
  return asked;
}

/** Calls `stop` on the first signal. Returns a function that makes signals end the process again. */
export function onInterrupt(stop: () => void): () => void {
  const asked = exitOnSignals();
  asked.stopRun = AsyncLocalStorage.bind(stop);
  return () => {
    asked.stopRun = undefined;
  };
}

function handle(io: Io, asked: Asked, signal: Signal): void {
  const now = performance.now();
  if (now - asked.at < SAME_SIGNAL_MS) return;
  const stop = asked.at === -Infinity ? asked.stopRun : undefined;
  asked.at = now;
  if (stop) stop();
  else io.endBy(signal);
}
