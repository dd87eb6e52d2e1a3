/** Checks whether a repeated step equals the logged step. */

import type { Metrics } from '../../src/grpo/metrics.ts';

/** Metrics that a replay cannot repeat: timings, and evaluations, which it skips. */
const NOT_OF_THE_STEP = /^(timing|perf|val-)/;

/** Returns the names of numbers that are not bit for bit equal. */
export function differing(logged: Metrics, again: Metrics): string[] {
  const names = new Set([...Object.keys(logged), ...Object.keys(again)].filter((name) => !NOT_OF_THE_STEP.test(name)));
  // Compared as JSON, because a value that is not finite was logged as null.
  return [...names].filter((name) => JSON.stringify(logged[name]) !== JSON.stringify(again[name]));
}
