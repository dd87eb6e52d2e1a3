/** Values of a chart's lines over the steps of every run that is shown. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { LineData } from '../../../src/ui/lineChart.ts';
import type { OtherRun } from '../../state/runs.ts';
import type { ChartSpec } from './specs.ts';

/** The series of the run that is shown, then the main one of each other. A step that has none of the values leaves no place. */
export function curvesOf({ series }: ChartSpec, history: readonly Metrics[], others: readonly OtherRun[]): LineData {
  const lines = [
    ...series.map(({ read }) => ({ read, lines: history })),
    ...others.map((other) => ({ read: series[0].read, lines: other.history })),
  ].map(({ read, lines }) => {
    const known = lines.map((line) => [line['training/global_step'], read(line)] as const);
    return new Map(known.filter(([, value]) => value !== undefined));
  });
  const steps = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
  return [steps, ...lines.map((line) => steps.map((step) => line.get(step) ?? null))];
}
