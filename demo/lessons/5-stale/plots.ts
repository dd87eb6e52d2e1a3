/** Pictures of lesson 5: ages as bars, weights with a cap, what a cap costs, and times of pipelines. */

import { short } from '../../../src/ui/format.ts';
import { line, picture, round, text } from '../kit/plot.ts';

const WIDTH = 360;

const box = (className: string, x: number, y: number, width: number, height: number): string =>
  `<rect class="${className}" x="${round(x)}" y="${round(y)}" width="${round(Math.max(0, width))}" height="${round(Math.max(0, height))}"/>`;

const percent = (share: number): string => `${Math.round(100 * share)}%`;

const AGES = { left: 66, right: 44, row: 26 };

/** Draws shares of tokens by age, a row for each age. */
export function agesPlot(shares: readonly number[], label: string): string {
  const { left, right, row } = AGES;
  const content = shares.flatMap((share, age) => [
    text('name', 0, row * age + 17, `age ${age}`),
    box(`bar age-${Math.min(age, 2)}`, left, row * age + 4, share * (WIDTH - left - right), row - 8),
    text('tick end', WIDTH, row * age + 17, percent(share)),
  ]);
  return picture('plot', WIDTH, row * shares.length, label, content.join(''));
}

const BINS = { left: 34, right: 10, top: 20, height: 180, bottom: 40, low: -3, high: 4, step: 0.25 };

/** Draws how many tokens have which weight, on an axis that doubles. Pale: before the cap. */
export function weightsPlot(weights: readonly number[], before: readonly number[], label: string): string {
  const { left, right, top, height, bottom, low, high, step } = BINS;
  const bins = Math.round((high - low) / step);
  const counted = (values: readonly number[]) => {
    const counts = Array.from({ length: bins }, () => 0);
    for (const value of values)
      counts[Math.max(0, Math.min(bins - 1, Math.floor((Math.log2(value) - low) / step + 1e-9)))]++;
    return counts.map((count) => count / Math.max(1, values.length));
  };
  const [now, then] = [counted(weights), counted(before)];
  // Most tokens have a weight near 1, so that the axis is of square roots.
  const most = Math.sqrt(Math.max(...now, ...then));
  const x = (log: number) => left + ((log - low) / (high - low)) * (WIDTH - left - right);
  const y = (share: number) => height - bottom - (Math.sqrt(share) / most) * (height - bottom - top);
  const bars = (className: string, shares: readonly number[]) =>
    shares.map((share, i) =>
      box(className, x(low + i * step) + 1, y(share), x(step) - x(0) - 2, height - bottom - y(share)),
    );
  const content = [
    ...bars('bar-before', then),
    ...bars('bar-weight', now),
    line('axis', left, height - bottom, WIDTH - right, height - bottom),
    line('mean', x(0), top, x(0), height - bottom),
    ...[0.01, 0.1, 0.5]
      .filter((share) => Math.sqrt(share) <= most)
      .map((share) => text('tick end', left - 2, y(share) + 4, percent(share))),
    ...[-3, -2, -1, 0, 1, 2, 3, 4].map((log) =>
      text('tick middle', x(log), height - bottom + 16, log < 0 ? `1/${2 ** -log}` : `${2 ** log}`),
    ),
    text('tick', 0, 11, 'share of the tokens'),
    text('tick middle', x((low + high) / 2), height - 5, 'weight'),
  ];
  return picture('plot', WIDTH, height, label, content.join(''));
}

const TRADE = { left: 40, right: 90, top: 22, height: 170, bottom: 38 };

/** Draws, by cap, the effective share of the tokens and the share of the weight that is kept. */
export function tradePlot(
  points: readonly { cap: number; share: number; kept: number }[],
  at: number,
  label: string,
): string {
  const { left, right, top, height, bottom } = TRADE;
  const last = Math.log2(points.at(-1)!.cap);
  const x = (cap: number) => left + (Math.log2(cap) / last) * (WIDTH - left - right);
  const y = (share: number) => height - bottom - share * (height - bottom - top);
  const curve = (className: string, of: 'share' | 'kept') =>
    `<polyline class="curve ${className}" points="${points.map((point) => `${round(x(point.cap))},${round(y(point[of]))}`).join(' ')}"/>`;
  const end = points.at(-1)!;
  const apart = Math.abs(y(end.share) - y(end.kept)) < 14 ? 12 : 0;
  const content = [
    ...[0, 0.5, 1].flatMap((share) => [
      line('grid', left, y(share), WIDTH - right, y(share)),
      text('tick end', left - 6, y(share) + 4, percent(share)),
    ]),
    ...[1, 2, 4, 8, 16].map((cap) => text('tick middle', x(cap), height - bottom + 16, `${cap}`)),
    line('mean', x(at), top, x(at), height - bottom),
    curve('curve-a', 'share'),
    curve('curve-b', 'kept'),
    text('tick', x(end.cap) + 6, y(end.share) + 4 + apart, 'effective'),
    text('tick', x(end.cap) + 6, y(end.kept) + 4, 'weight kept'),
    text('tick middle', x(4), height - 4, 'cap'),
  ];
  return picture('plot', WIDTH, height, label, content.join(''));
}

const TIMES = { left: 92, right: 8, row: 52 };

/** Draws the seconds of a step by pipeline: filled = training, pale = training waits. */
export function timesPlot(
  times: readonly { name: string; seconds: number; waits: number; stale: number }[],
  label: string,
): string {
  const { left, right, row } = TIMES;
  const longest = Math.max(...times.map(({ seconds }) => seconds));
  const content = times.flatMap(({ name, seconds, waits, stale }, i) => {
    const size = (seconds / longest) * (WIDTH - left - right);
    return [
      text('name', 0, row * i + 18, name),
      box('part-0', left, row * i + 4, size * (1 - waits), 20),
      box('waits', left + size * (1 - waits), row * i + 4, size * waits, 20),
      text('tick', left, row * i + 40, `${short(seconds)} s, waits ${percent(waits)}, old groups ${percent(stale)}`),
    ];
  });
  return picture('plot', WIDTH, row * times.length, label, content.join(''));
}
