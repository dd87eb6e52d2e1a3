/** Shares one listener of an AbortSignal among many callbacks, because Node warns if a signal has more than ten listeners. */

const WAITING = new WeakMap<AbortSignal, Set<() => void>>();

/**
 * Calls `run` when the signal aborts, but not if it has aborted already. `run` must not throw. Returns a function that removes the
 * callback.
 */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const waiting = WAITING.get(signal) ?? listenTo(signal);
  const entry = () => run(); // so that a function passed twice is called twice
  waiting.add(entry);
  return () => waiting.delete(entry);
}

function listenTo(signal: AbortSignal): Set<() => void> {
  const waiting = new Set<() => void>();
  WAITING.set(signal, waiting);
  const tellAll = () => {
    const told = [...waiting];
    waiting.clear();
    for (const run of told) run();
  };
  signal.addEventListener('abort', tellAll, { once: true });
  return waiting;
}
