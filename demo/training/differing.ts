/** Checks whether a step that was done again is the step that was logged. */

import type { Metrics } from '../../src/grpo/metrics.ts';

/** What a clock measures, and evaluations, which a replay leaves out. */
const NOT_OF_THE_STEP = /^(timing|perf|val-)/;

/** Numbers that are not the same, bit for bit; none = it is. */
export function differing(logged: Metrics, again: Metrics): string[] {
  const names = new Set([...Object.keys(logged), ...Object.keys(again)].filter((name) => !NOT_OF_THE_STEP.test(name)));
  // Compared as JSON, because a value that is not finite was logged as null.
  return [...names].filter((name) => JSON.stringify(logged[name]) !== JSON.stringify(again[name]));
}
