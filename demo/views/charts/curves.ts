/** Computes the values of a chart's lines over steps or over time, for all shown runs. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { LineData } from '../../../src/ui/lineChart.ts';
import { smoothed } from '../../state/measured.ts';
import type { Along, OtherRun } from '../../state/runs.ts';
import type { ChartSpec } from './specs.ts';

/** Returns the seconds from the start of a run to the end of each step. */
export function elapsed(lines: readonly Metrics[]): number[] {
  let sum = 0;
  return lines.map((line) => {
    sum += (line['timing_s/step'] ?? 0) + (line['timing_s/testing'] ?? 0);
    return Math.round(100 * sum) / 100;
  });
}

/**
 * Returns the series of the shown run, then the main series of each other run. Steps without any value are skipped.
 * @param along quantity of the horizontal axis: steps or time
 */
export function curvesOf(
  { series }: ChartSpec,
  history: readonly Metrics[],
  others: readonly OtherRun[],
  along: Along = 'steps',
): LineData {
  const lines = [
    ...series.map(({ read, smooth }) => ({ read, smooth, lines: history })),
    ...others.map((other) => ({ read: series[0].read, smooth: false, lines: other.history })),
  ].map(({ read, smooth, lines }) => {
    const places = along === 'seconds' ? elapsed(lines) : lines.map((line) => line['training/global_step']);
    const known = lines.flatMap((line, i) => {
      const value = read(line);
      return value === undefined ? [] : [{ step: places[i], value }];
    });
    const averages = smooth ? smoothed(known.map(({ value }) => value)) : undefined;
    return new Map(known.map(({ step, value }, i) => [step, averages?.[i] ?? value]));
  });
  const steps = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  return [steps, ...lines.map((line) => steps.map((step) => line.get(step) ?? null))];
}
