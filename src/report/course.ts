/** Judges by one metric whether a run has learned, and prints the course of the metric as text. */

import { describe, InputError } from '../errors.ts';
import { nearestKey } from '../grpo/config/resolve.ts';
import type { Metrics } from '../grpo/metrics.ts';
import { spreadOut } from '../runs/rollouts.ts';

/** Values that a metric must reach so that the run counts as having learned. */
export interface Learns {
  /** Name of a metric whose rise is good, such as `critic/score/mean`. */
  metric: string;
  /** Minimum of the mean of the last values. */
  atLeast: number;
  /** Number of last values to average. Default: 1. */
  last?: number;
}

const MOST_LINES = 24;
const BAR = 40;

/**
 * Returns whether the metric has risen to the required value, and a reason that shows the course of the metric. Throws InputError if the
 * run lacks the metric or has too few values of it. With `isNot`, the reason says that no rise was expected.
 */
export function judgeCourse(
  history: readonly Metrics[],
  { metric, atLeast, last = 1 }: Learns,
  isNot = false,
): { pass: boolean; reason: string } {
  if (!Array.isArray(history))
    throw new InputError('toLearn got no run. Give it the result of "await trainInPage(...)", or { history }.');
  if (typeof atLeast !== 'number' || Number.isNaN(atLeast))
    throw new InputError(
      `toLearn: atLeast is ${describe(atLeast)}, not a number. Set it to what ${metric} must reach.`,
    );
  const points = pointsOf(history, metric);
  if (!(Number.isInteger(last) && last > 0 && last < points.length))
    throw new InputError(
      `toLearn compares the first value of ${metric} with the mean of the last ${last}, but the run has ${points.length}. ` +
        'Set last to a smaller whole number above 0, or train for more steps.',
    );
  const first = points[0].value;
  const end = points.slice(-last).reduce((sum, { value }) => sum + value, 0) / last;
  const of = last === 1 ? 'its last value' : `the mean of its last ${last} values`;
  const how = `${metric} was ${short(first)} at first, and ${of} is ${short(end)}`;
  const expected = `Expected: ${isNot ? 'no' : 'a'} rise to at least ${short(atLeast)}.`;
  return { pass: end >= atLeast && end > first, reason: [`${how}. ${expected}`, ...barsOf(points)].join('\n') };
}

interface Point {
  step: number;
  value: number;
}

function pointsOf(history: readonly Metrics[], metric: string): Point[] {
  const points = history.flatMap((line) =>
    line[metric] === undefined ? [] : [{ step: line['training/global_step'], value: line[metric] }],
  );
  if (points.length > 0) return points;
  const names = [...new Set(history.flatMap((line) => Object.keys(line)))];
  const meant = names.length === 0 ? '' : ` Did you mean "${nearestKey(metric, names)}"?`;
  throw new InputError(`The run has no metric "${metric}" in its ${history.length} lines.${meant}`);
}

/**
 * Returns one line of text per value, with a bar from the smallest value to the largest. Of many values, a selection is shown with the
 * first and the last.
 */
function barsOf(points: readonly Point[]): string[] {
  const values = points.map(({ value }) => value).filter(Number.isFinite);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const bar = (value: number) => '#'.repeat(1 + Math.round(((value - low) / (high - low || 1)) * (BAR - 1)));
  const width = String(points.at(-1)!.step).length;
  return spreadOut(points, MOST_LINES).map(
    ({ step, value }) =>
      `  step ${String(step).padStart(width)}  ${short(value).padStart(10)}  ${Number.isFinite(value) ? bar(value) : ''}`,
  );
}

const short = (value: number): string => String(Number(value.toPrecision(4)));
