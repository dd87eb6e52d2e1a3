/** Values of a line of metrics.jsonl by name or, where a name holds the task's, by pattern. */

import type { Metrics } from '../grpo/metrics.ts';

/** `val-core/<task>/acc/mean@k`; k is whatever valKwargs.n says. */
export const PASS_AT_1 = /^val-core\/.*\/acc\/mean@\d+$/;
export const GREEDY_ACC = /^val-core\/.*\/acc\/greedy$/;

export const passAt1 = (line: Metrics): number | undefined => read(line, PASS_AT_1);

export const greedyAcc = (line: Metrics): number | undefined => read(line, GREEDY_ACC);

/** For a chart: null where the line has no such value, or none that can be drawn. */
export function drawableMetric(line: Metrics, metric: string | RegExp): number | null {
  const value = read(line, metric);
  return value === undefined || !Number.isFinite(value) ? null : value;
}

/** By name, or of the first name that matches. */
function read(line: Metrics, metric: string | RegExp): number | undefined {
  const key = typeof metric === 'string' ? metric : Object.keys(line).find((name) => metric.test(name));
  return key === undefined ? undefined : line[key];
}
