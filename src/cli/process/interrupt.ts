/**
 * Handles SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first signal asks the run to stop after its step and save; the
 * process then exits with STOPPED_EXIT_CODE. A second signal, or a first one while there is nothing to save, ends the process immediately
 * by the signal's default effect, which a shell reports as 128 + the signal's number.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { currentIo, type Io, type Signal } from './io.ts';

/** Exit code of a run that was stopped by a signal and saved. It differs from the exit codes of finished, failed and killed runs. */
export const STOPPED_EXIT_CODE = 3;

/** Paragraph about signals for the --help of commands that train. */
export const STOPS =
  'Ctrl-C, SIGTERM and SIGHUP end the run after the current step, and an evaluation immediately. The run is saved, and the exit\n' +
  `code is ${STOPPED_EXIT_CODE}. A second signal ends the process immediately, with 128 + the number of the signal. Only one process at a time\n` +
  'can write to a run folder.';

/**
 * A second signal within this many milliseconds is ignored. Ctrl-C reaches all processes of the terminal, and a parent (npm,
 * scripts/webgrpo.mjs) forwards the signal to this process again.
 */
const SAME_SIGNAL_MS = 300;

interface Asked {
  /** Called on the first signal; undefined if there is nothing to save. */
  stopRun?: (() => void) | undefined;
  at: number;
}

const listening = new WeakMap<Io, Asked>();

/** Starts to handle signals. From then on a signal that ends the process runs its 'exit' listeners first, for example to release a lock. */
export function exitOnSignals(): Asked {
  const io = currentIo();
  const known = listening.get(io);
  if (known) return known;
  const asked: Asked = { at: -Infinity };
  listening.set(io, asked);
  io.onSignal((signal) => handle(io, asked, signal));
  return asked;
}

/** Calls `stop` on the first signal. Returns a function that removes `stop`, so that the next signal ends the process. */
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
