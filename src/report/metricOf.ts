/** Reads values of a line of metrics.jsonl. A metric is given by its name, or by a pattern if the name contains the name of the task. */

import type { Metrics } from '../grpo/metrics.ts';

/** Matches `val-core/<task>/acc/mean@k`, with k as set by valKwargs.n. */
export const PASS_AT_1 = /^val-core\/.*\/acc\/mean@\d+$/;
export const GREEDY_ACC = /^val-core\/.*\/acc\/greedy$/;

/** Returns pass@1 of an evaluation; undefined if the line has no evaluation. */
export const passAt1 = (line: Metrics): number | undefined => read(line, PASS_AT_1);

/** Returns greedy accuracy of an evaluation; undefined if the line lacks it. */
export const greedyAcc = (line: Metrics): number | undefined => read(line, GREEDY_ACC);

/** Returns a value for a chart. Null if the line lacks the metric or its value is not finite. */
export function drawableMetric(line: Metrics, metric: string | RegExp): number | null {
  const value = read(line, metric);
  return value === undefined || !Number.isFinite(value) ? null : value;
}

/** Formats a number with this number of decimals. A value that rounds to 0 has no sign. */
export const fixed = (value: number, digits: number): string => value.toFixed(digits).replace(/^-(?=0(?:\.0*)?$)/, '');

/** Returns the value of the metric with this name, or of the first metric whose name matches the pattern. */
function read(line: Metrics, metric: string | RegExp): number | undefined {
  const key = typeof metric === 'string' ? metric : Object.keys(line).find((name) => metric.test(name));
  return key === undefined ? undefined : line[key];
}
