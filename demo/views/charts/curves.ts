/** Values of a chart's lines over the steps of all shown runs. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import type { LineData } from '../../../src/ui/lineChart.ts';
import type { OtherRun } from '../../state/runs.ts';
import type { ChartSpec } from './specs.ts';

/** Returns the series of the shown run, then the main series of each other run. Steps without any value are skipped. */
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
