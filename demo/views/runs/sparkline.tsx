/** A curve without axes, as high as a line of text, with its first and last value. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import { passAt1 } from '../../../src/report/metricOf.ts';
import { short } from '../../../src/ui/format.ts';

const [WIDTH, HEIGHT] = [88, 22];

/** Shows pass@1 for a run with at least two evaluations, otherwise the mean reward. */
export function Sparkline({ history }: { history: readonly Metrics[] }) {
  const accuracy = history.flatMap((line) => passAt1(line) ?? []);
  const [name, values] =
    accuracy.length > 1 ? ['pass@1', accuracy] : ['reward', history.flatMap((line) => line['critic/score/mean'] ?? [])];
  if (values.length === 0) return <span class="note">no steps</span>;
  const words = values.length > 1 ? `${short(values[0])} to ${short(values.at(-1)!)}` : short(values[0]);
  return (
    <span class="run-curve">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} aria-hidden="true">
        {values.length > 1 ? (
          <polyline points={pointsOf(values)} fill="none" stroke="var(--accent)" stroke-width="1.5" />
        ) : (
          <circle cx={WIDTH / 2} cy={HEIGHT / 2} r="3" fill="var(--accent)" />
        )}
      </svg>
      <span>{`${name} ${words}`}</span>
    </span>
  );
}

function pointsOf(values: readonly number[]): string {
  const [low, high] = [Math.min(0, ...values), Math.max(1e-9, ...values)];
  const x = (i: number) => ((WIDTH - 4) * i) / (values.length - 1) + 2;
  const y = (value: number) => HEIGHT - 2 - ((HEIGHT - 4) * (value - low)) / (high - low);
  return values.map((value, i) => `${x(i).toFixed(1)},${y(value).toFixed(1)}`).join(' ');
}
