/** Values of a chart's lines over the steps of all shown runs. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { LineData } from '../../../src/ui/lineChart.ts';
import { smoothed } from '../../state/measured.ts';
import type { OtherRun } from '../../state/runs.ts';
import type { ChartSpec } from './specs.ts';

/** Returns the series of the shown run, then the main series of each other run. Steps without any value are skipped. */
export function curvesOf({ series }: ChartSpec, history: readonly Metrics[], others: readonly OtherRun[]): LineData {
  const lines = [
    ...series.map(({ read, smooth }) => ({ read, smooth, lines: history })),
    ...others.map((other) => ({ read: series[0].read, smooth: false, lines: other.history })),
  ].map(({ read, smooth, lines }) => {
    const known = lines.flatMap((line) => {
      const value = read(line);
      return value === undefined ? [] : [{ step: line['training/global_step'], value }];
    });
    const averages = smooth ? smoothed(known.map(({ value }) => value)) : undefined;
    return new Map(known.map(({ step, value }, i) => [step, averages?.[i] ?? value]));
  });
  const steps = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  return [steps, ...lines.map((line) => steps.map((step) => line.get(step) ?? null))];
}
