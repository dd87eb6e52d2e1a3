/** Lets a test decide when timers end. `vi.restoreAllMocks()` restores the clock. */

import { vi } from 'vitest';

/** Holds every timer of `ms` milliseconds that is set from now on. Returns a function that ends them, as if that time had passed. */
export function holdTimers(ms: number): () => void {
  const { setTimeout } = globalThis;
  const held: (() => void)[] = [];
  vi.spyOn(globalThis, 'setTimeout').mockImplementation((callback, after) => {
    if (after !== ms) return setTimeout(callback, after);
    held.push(callback);
    return setTimeout(() => undefined, 0);
  });
  return () => held.splice(0).forEach((callback) => callback());
}
