/** Pictures of lesson 6: evaluations as dots, intervals as rows, pass@k, scores of checkpoints, and seeds. */

import type { PassInterval } from '../../../src/report/passInterval.ts';
import { line, picture, round, text } from '../kit/plot.ts';

const WIDTH = 360;

const percentTicks = [0, 0.25, 0.5, 0.75, 1];

const circle = (className: string, x: number, y: number, r: number): string =>
  `<circle class="${className}" cx="${round(x)}" cy="${round(y)}" r="${r}"/>`;

/** Draws an interval as a line with end marks, and its mean as a dot. */
const interval = (className: string, { mean, low, high }: PassInterval, x: (rate: number) => number, y: number) =>
  [
    line(`span ${className}`, x(low), y, x(high), y),
    line(`span ${className}`, x(low), y - 5, x(low), y + 5),
    line(`span ${className}`, x(high), y - 5, x(high), y + 5),
    circle(`dot ${className}`, x(mean), y, 4),
  ].join('');

const DOTS = { left: 14, right: 14, top: 8, height: 150 };

interface DrawnRates {
  rates: readonly number[];
  /** True rate, drawn as a line. */
  truth: number;
  /** Interval of an evaluation whose pass rate equals the true rate. */
  expected: PassInterval;
  /** Intervals of the evaluations that ran in this tab. */
  own: readonly PassInterval[];
}

/** Draws simulated evaluations as stacked dots, the expected interval, and below them the evaluations of this tab. */
export function ratesPlot({ rates, truth, expected, own }: DrawnRates, label: string): string {
  const { left, right, top, height } = DOTS;
  const x = (rate: number) => left + rate * (WIDTH - left - right);
  const stacks = new Map<number, number>();
  for (const rate of rates.map((one) => Math.round(one * 128) / 128)) stacks.set(rate, (stacks.get(rate) ?? 0) + 1);
  const highest = Math.max(...stacks.values());
  const gap = Math.min(6, (height - 14) / highest);
  const floor = top + height;
  const dots = [...stacks].flatMap(([rate, stack]) =>
    Array.from({ length: stack }, (_, i) => circle('draw', x(rate), floor - 4 - i * gap, 2)),
  );
  const rows = [expected, ...own];
  const end = floor + 22 * rows.length + 8;
  const content = [
    line('mean', x(truth), top, x(truth), floor),
    ...dots,
    line('axis', x(0), floor, x(1), floor),
    ...rows.map((row, i) => interval(i === 0 ? '' : 'own', row, x, floor + 16 + 22 * i)),
    ...percentTicks.map((at) =>
      text(`tick ${at === 0 ? '' : at === 1 ? 'end' : 'middle'}`, x(at), end + 14, at.toFixed(2)),
    ),
  ];
  content.push(text('tick middle', WIDTH / 2, end + 32, 'share of problems solved'));
  return picture('plot', WIDTH, end + 36, label, content.join(''));
}

const ROWS = { left: 70, right: 12, top: 8, gap: 46 };

/** Draws two intervals per row. The axis covers only the range that the intervals need. */
export function intervalsPlot(
  rows: readonly { name: string; byProblem: PassInterval; naive: PassInterval }[],
  truth: number,
  label: string,
): string {
  const { left, right, top, gap } = ROWS;
  const all = rows.flatMap(({ byProblem, naive }) => [byProblem.low, byProblem.high, naive.low, naive.high]);
  const [low, high] = [Math.floor(10 * Math.min(...all)) / 10, Math.ceil(10 * Math.max(...all)) / 10];
  const x = (rate: number) => left + ((rate - low) / (high - low)) * (WIDTH - left - right);
  const floor = top + gap * rows.length;
  const content = [
    line('mean', x(truth), top, x(truth), floor),
    ...rows.flatMap(({ name, byProblem, naive }, r) => [
      text('name', 0, top + gap * r + 24, name),
      interval('', byProblem, x, top + gap * r + 14),
      interval('naive', naive, x, top + gap * r + 30),
    ]),
    line('axis', left, floor, WIDTH - right, floor),
    ...[low, (low + high) / 2, high].map((at, i) =>
      text(`tick ${i === 0 ? '' : i === 2 ? 'end' : 'middle'}`, x(at), floor + 16, at.toFixed(2)),
    ),
  ];
  return picture('plot', WIDTH, floor + 22, label, content.join(''));
}

const PASS = { left: 40, right: 52, top: 28, height: 240, bottom: 38 };

/** A curve of pass@k with its band. */
export interface PassCurve {
  name: string;
  className: string;
  points: readonly { k: number; pass: number; low: number; high: number }[];
}

/** Draws pass@k over k, on a logarithmic axis with a mark at each power of two. */
export function passPlot(curves: readonly PassCurve[], at: number, label: string): string {
  const { left, right, top, height, bottom } = PASS;
  const last = curves[0].points.at(-1)!.k;
  const x = (k: number) => left + (Math.log2(k) / Math.log2(last)) * (WIDTH - left - right);
  const lowest = Math.floor(10 * Math.min(...curves.flatMap(({ points }) => points.map(({ low }) => low)))) / 10;
  const y = (pass: number) => height - bottom - ((pass - lowest) / (1 - lowest)) * (height - bottom - top);
  const path = (points: readonly (readonly [number, number])[]) =>
    points.map(([k, pass]) => `${round(x(k))},${round(y(pass))}`).join(' ');
  const ends = curves.map(({ points }) => y(points.at(-1)!.pass));
  const lower = Math.max(...ends);
  const content = [
    ...[lowest, (lowest + 1) / 2, 1].flatMap((pass) => [
      line('grid', left, y(pass), WIDTH - right, y(pass)),
      text('tick end', left - 6, y(pass) + 4, pass.toFixed(2)),
    ]),
    ...[1, 2, 4, 8, 16, 32].map((k) => text('tick middle', x(k), height - bottom + 16, `${k}`)),
    text('tick middle', x(Math.sqrt(last)), height - 4, 'tries, k'),
    text('tick', 0, 11, 'pass@k'),
    ...curves.map(({ className, points }) => {
      const upper = points.map(({ k, high }) => [k, high] as const);
      const under = points.map(({ k, low }) => [k, low] as const).toReversed();
      return `<polygon class="area ${className}" points="${path([...upper, ...under])}"/>`;
    }),
    line('mean', x(at), top, x(at), height - bottom),
    ...curves.map(
      ({ className, points }) =>
        `<polyline class="curve ${className}" points="${path(points.map(({ k, pass }) => [k, pass] as const))}"/>`,
    ),
    ...curves.map(({ name }, i) => {
      // Keep the names of the curves from overlapping.
      const apart =
        Math.abs(ends[0] - ends[1]) < 16 ? (ends[i] === lower && i === ends.lastIndexOf(lower) ? 8 : -8) : 0;
      return text('tick', x(last) + 8, ends[i] + 4 + apart, name);
    }),
  ];
  return picture('plot', WIDTH, height, label, content.join(''));
}

const SCORES = { left: 44, right: 12, top: 14, height: 200, bottom: 36 };

/** Draws the score of each evaluation. Only the first `count` are considered, and the best of these is marked. */
export function scoresPlot(scores: readonly number[], count: number, truth: number, label: string): string {
  const { left, right, top, height, bottom } = SCORES;
  const [low, high] = [Math.min(...scores) - 0.01, Math.max(...scores) + 0.01];
  const x = (at: number) => left + 8 + (at / (scores.length - 1)) * (WIDTH - left - right - 16);
  const y = (score: number) => height - bottom - ((score - low) / (high - low)) * (height - bottom - top);
  const best = scores.indexOf(Math.max(...scores.slice(0, count)));
  const content = [
    ...[low, high].map((score) => text('tick end', left - 4, y(score) + 4, score.toFixed(2))),
    line('axis', left, height - bottom, WIDTH - right, height - bottom),
    line('mean', left, y(truth), WIDTH - right, y(truth)),
    ...scores.map((score, i) => circle(i < count ? 'dot' : 'dot faint', x(i), y(score), i < count ? 4 : 2.5)),
    circle('best', x(best), y(scores[best]), 8),
    text('tick', x(0) - 6, height - bottom + 16, '1'),
    text('tick end', x(scores.length - 1) + 6, height - bottom + 16, `${scores.length}`),
    text('tick middle', (left + WIDTH - right) / 2, height - 4, 'evaluations of the same weights'),
  ];
  return picture('plot', WIDTH, height, label, content.join(''));
}

const SEEDS = { left: 76, right: 14, top: 10, gap: 32, low: 0.88 };

/** Draws one row per algorithm, with the score of each run and the mean. The algorithms in `chosen` are highlighted. */
export function seedsPlot(
  rows: readonly { name: string; passes: readonly number[] }[],
  chosen: readonly string[],
  label: string,
): string {
  const { left, right, top, gap, low } = SEEDS;
  const x = (pass: number) => left + ((pass - low) / (1 - low)) * (WIDTH - left - right);
  const floor = top + gap * rows.length;
  const content = [
    ...rows.flatMap(({ name, passes }, r) => {
      const y = top + gap * r + gap / 2;
      const mean = passes.reduce((sum, pass) => sum + pass, 0) / passes.length;
      const faint = chosen.includes(name) ? '' : ' faint';
      return [
        text(`name${faint}`, 0, y + 4, name),
        line('grid', left, y, WIDTH - right, y),
        ...passes.map((pass) => circle(`dot${faint}`, x(pass), y, 4)),
        line(`mean${faint}`, x(mean), y - 11, x(mean), y + 11),
      ];
    }),
    line('axis', left, floor, WIDTH - right, floor),
    ...[low, 0.94, 1].map((at, i) =>
      text(`tick ${i === 0 ? '' : i === 2 ? 'end' : 'middle'}`, x(at), floor + 16, at.toFixed(2)),
    ),
  ];
  return picture('plot', WIDTH, floor + 22, label, content.join(''));
}
