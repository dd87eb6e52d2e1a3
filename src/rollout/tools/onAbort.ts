/** Many wait for one signal, and Node warns of more than ten listeners: here a signal has one, which tells all of them. */

const WAITING = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls `run`, which must not throw, when the signal aborts; not if it has. Returns what takes it back. */
export function onAbort(signal: AbortSignal, run: () => void): () => void {
  const waiting = WAITING.get(signal) ?? listenTo(signal);
  const entry = () => run(); // so that a function given twice is called twice
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
