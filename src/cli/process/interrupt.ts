/**
 * SIGINT (Ctrl-C), SIGTERM and SIGHUP (a closed terminal). The first asks the run for a clean stop, which saves: the process ends with
 * STOPPED_EXIT_CODE. The second, or any while nothing is worth saving, ends it at once by that signal, which a shell calls 128 + its
 * number.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import { currentIo, type Io, type Signal } from './io.ts';

/** Exit code of a run that was stopped and saved: it differs from those of a finished, failed or killed run. */
export const STOPPED_EXIT_CODE = 3;

/** For --help. */
export const STOPS =
  'Ctrl-C, SIGTERM and SIGHUP end the run after the step that it is in, and an evaluation at once; the run is saved, and the exit\n' +
  `code is ${STOPPED_EXIT_CODE}. A second one ends the process at once, with 128 + the signal's number. One process at a time may write to\n` +
  'a run folder.';

/** A signal to a process group comes twice where a parent (npm, scripts/webgrpo.mjs) hands its own on: within this it is one. */
const SAME_SIGNAL_MS = 300;

interface Asked {
  /** What a first signal asks; undefined if nothing is worth saving. */
  stopRun?: (() => void) | undefined;
  at: number;
}

const listening = new WeakMap<Io, Asked>();

/** From now on what listens to the process's end (a lock) is done when a signal ends it. */
export function exitOnSignals(): Asked {
  const io = currentIo();
  const known = listening.get(io);
  if (known) return known;
  const asked: Asked = { at: -Infinity };
  listening.set(io, asked);
  io.onSignal((signal) => handle(io, asked, signal));
  return asked;
}

/** Calls `stop` on the first signal. Returns what makes signals end the process again. */
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
