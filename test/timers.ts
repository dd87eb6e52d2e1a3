/** Lets a test decide when timers end. `vi.unstubAllGlobals()` restores the clock. */

import { vi } from 'vitest';

/** Holds every timer of `ms` milliseconds that is set from now on. Returns a function that ends them, as if that time had passed. */
export function holdTimers(ms: number): () => void {
  const { setTimeout } = globalThis;
  const held: (() => void)[] = [];
  // No mock: a mock keeps the arguments of every call, so a long test's timers and all they refer to would stay on the heap.
  vi.stubGlobal('setTimeout', (callback: () => void, after?: number, ...values: []) => {
    if (after !== ms) return setTimeout(callback, after, ...values);
    held.push(callback);
    return setTimeout(() => undefined, 0);
  });
  return () => held.splice(0).forEach((callback) => callback());
}
