/**
 * Figures as SVG text, for the live page and for the still pictures in its HTML. All numbers in a figure come from the function's
 * arguments.
 */

import { short, signed } from '../../../src/ui/format.ts';

/** Escapes a text for an SVG attribute. */
export const attribute = (text: string): string =>
  text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replaceAll('<', '&lt;');

/** Formats a coordinate with at most one decimal. */
export const round = (value: number): string => String(Math.round(value * 10) / 10);

/** Returns an SVG picture with a description for screen readers. */
export const picture = (className: string, width: number, height: number, label: string, content: string): string =>
  `<svg class="${className}" viewBox="0 0 ${width} ${height}" role="img" aria-label="${attribute(label)}">${content}</svg>`;

/** Returns a line. */
export const line = (className: string, x1: number, y1: number, x2: number, y2: number): string =>
  `<line class="${className}" x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}"/>`;

/** Returns SVG for a text at a point. */
export const text = (className: string, x: number, y: number, content: string): string =>
  `<text class="${className}" x="${round(x)}" y="${round(y)}">${attribute(content)}</text>`;

const BAR = { width: 240, height: 30 };

/**
 * Draws an advantage as a bar that starts in the middle: right = pushed up, left = pushed down.
 * @param most size at the end of the axis
 * @param guess a predicted value, drawn as an outline
 */
export function bar(value: number, most: number, label: string, guess?: number): string {
  const middle = BAR.width / 2;
  const reach = (of: number) => (Math.max(-1, Math.min(1, of / most)) * (BAR.width - 2)) / 2;
  const box = (className: string, of: number, y: number, height: number) => {
    const [from, to] = [Math.min(middle, middle + reach(of)), Math.abs(reach(of))];
    return `<rect class="${className}" x="${round(from)}" y="${y}" width="${round(to)}" height="${height}"/>`;
  };
  const content = [
    box(value > 0 ? 'bar-up' : 'bar-down', value, 7, 16),
    guess === undefined ? '' : box('bar-guess', guess, 3, 24),
    line('axis', middle, 0, middle, BAR.height),
  ];
  return picture('bar', BAR.width, BAR.height, label, content.join(''));
}

const STRIP = { width: 360, height: 74, left: 14, right: 14 };

/** Draws the rewards of a group on a line, with their mean and a band of one standard deviation around the mean. NaN is not drawn. */
export function strip(rewards: readonly number[], mean: number, spread: number, label: string): string {
  const known = rewards.filter((reward) => !Number.isNaN(reward));
  const x = (reward: number) => STRIP.left + reward * (STRIP.width - STRIP.left - STRIP.right);
  const clamped = (reward: number) => x(Math.max(0, Math.min(1, reward)));
  const dots = [...new Set(known)].map((reward) => {
    const count = known.filter((one) => one === reward).length;
    const anchor = reward > 0.9 ? 'end' : reward < 0.1 ? '' : 'middle';
    const tries = count > 1 ? text(`tick ${anchor}`, clamped(reward), 50, `${count} tries`) : '';
    return `<circle class="dot" cx="${round(clamped(reward))}" cy="30" r="5"/>${tries}`;
  });
  const band = `<rect class="band" x="${round(clamped(mean - spread))}" y="14" width="${round(clamped(mean + spread) - clamped(mean - spread))}" height="40"/>`;
  const content = [
    known.length > 1 && spread > 0 ? band : '',
    line('axis', x(0), 54, x(1), 54),
    ...dots,
    known.length > 0 ? line('mean', clamped(mean), 10, clamped(mean), 54) : '',
    known.length > 0
      ? text(`tick ${mean > 0.85 ? 'end' : mean < 0.15 ? '' : 'middle'}`, clamped(mean), 9, `mean ${mean.toFixed(3)}`)
      : '',
    ...[0, 0.5, 1].map((at) => text(`tick ${at === 0 ? '' : at === 1 ? 'end' : 'middle'}`, x(at), 70, `${at}`)),
  ];
  return picture('strip', STRIP.width, STRIP.height, label, content.join(''));
}

/** Returns the probability that all n tries of a group get the same reward, if each is right with probability p. */
export const silentShare = (p: number, n: number): number => p ** n + (1 - p) ** n;

const CHART = { width: 360, height: 256, left: 30, right: 12, top: 22, bottom: 40 };

/**
 * Draws the probability of a silent group over the pass rate, and recorded steps as dots.
 * @param steps entries: step, mean reward, share of silent groups
 * @param named steps whose number is written next to their dot
 */
export function silencePlot(
  { p, n }: { p: number; n: number },
  steps: readonly (readonly [number, number, number])[],
  named: readonly number[],
  label: string,
): string {
  const { width, height, left, right, top, bottom } = CHART;
  const x = (value: number) => left + value * (width - left - right);
  const y = (value: number) => height - bottom - value * (height - top - bottom);
  const points = Array.from({ length: 101 }, (_, i) => `${round(x(i / 100))},${round(y(silentShare(i / 100, n)))}`);
  const grid = [0, 0.5, 1].flatMap((at) => [
    line('grid', x(0), y(at), x(1), y(at)),
    text('tick end', left - 6, y(at) + 4, `${at}`),
    text('tick middle', x(at), height - bottom + 16, `${at}`),
  ]);
  const dots = steps.map(([step, reward, silent]) => {
    const isNamed = named.includes(step);
    return `<circle class="${isNamed ? 'dot' : 'dot faint'}" cx="${round(x(reward))}" cy="${round(y(silent))}" r="${isNamed ? 5 : 2.5}"/>`;
  });
  const names = steps
    .filter(([step]) => named.includes(step))
    .map(([step, reward, silent]) => text('tick end', x(reward) - 8, y(silent) + 4, `step ${step}`));
  const content = [
    ...grid,
    `<polyline class="curve" points="${points.join(' ')}"/>`,
    ...dots,
    ...names,
    line('mean', x(p), y(0), x(p), y(silentShare(p, n))),
    `<circle class="handle" cx="${round(x(p))}" cy="${round(y(silentShare(p, n)))}" r="6"/>`,
    text('tick middle', x(0.5), height - 6, 'share of right tries'),
    text('tick', 0, 11, 'share of silent groups'),
  ];
  return picture('plot', width, height, label, content.join(''));
}

const ROWS = { width: 360, left: 88, right: 100, gap: 48, height: 40 };

/**
 * Draws the advantages of a group by several methods, one row per method, all on the same scale. The smallest and largest advantage are
 * written at the end of each row.
 */
export function rowsPlot(rows: readonly { name: string; values: readonly number[] }[], label: string): string {
  const all = rows.flatMap(({ values }) => values);
  const [highest, lowest] = [Math.max(1e-6, ...all), Math.min(0, ...all)];
  const scale = ROWS.height / (highest - lowest);
  const height = rows.length * ROWS.gap + 6;
  const content = rows.map(({ name, values }, r) => {
    const middle = r * ROWS.gap + 4 + highest * scale;
    const step = (ROWS.width - ROWS.left - ROWS.right) / Math.max(1, values.length);
    const bars = values.map((value, i) => {
      const size = Math.abs(value) * scale;
      const top = value > 0 ? middle - size : middle;
      return `<rect class="${value > 0 ? 'bar-up' : 'bar-down'}" x="${round(ROWS.left + i * step + 2)}" y="${round(top)}" width="${round(step - 4)}" height="${round(size)}"/>`;
    });
    const ends = [Math.max(...values), Math.min(...values)].map(signed).join(' / ');
    return [
      text('name', 0, middle + 4, name),
      ...bars,
      line('axis', ROWS.left, middle, ROWS.width - ROWS.right, middle),
      text('tick end', ROWS.width, middle + 4, ends),
    ].join('');
  });
  return picture('rows', ROWS.width, height, label, content.join(''));
}

const RUN = { width: 260, height: 120, left: 50, right: 8, top: 8, bottom: 20 };

/** A curve over steps 0, 1, 2, ...; null = not measured. */
export type Curve = readonly (number | null)[];

interface RunPlotOptions {
  step?: number;
  last?: number;
  behind?: readonly Curve[];
  most?: number;
}

/**
 * Draws a run's curve, and other runs' curves paler behind it. A value without measured neighbours is a dot. The vertical axis includes 0
 * and every value.
 * @param step step to mark
 * @param last last step on the horizontal axis
 * @param most value that the vertical axis reaches at least
 */
export function runPlot(
  curve: Curve,
  label: string,
  { step, last = curve.length - 1, behind = [], most: least = 0 }: RunPlotOptions = {},
): string {
  const { width, height, left, right, top, bottom } = RUN;
  const all = [curve, ...behind].flat().filter((value) => value !== null);
  const [low, high] = [Math.min(0, ...all), Math.max(least, ...all)];
  const most = high === low ? low + 1 : high;
  const x = (at: number) => left + (at / Math.max(1, last)) * (width - left - right);
  const y = (value: number) => height - bottom - ((value - low) / (most - low)) * (height - top - bottom);
  const drawn = (values: Curve, className: string) => {
    const points = values.flatMap((value, at) => (value === null ? [] : [{ at, value }]));
    const dense = points.length > values.length / 2;
    const path = points.map(({ at, value }) => `${round(x(at))},${round(y(value))}`).join(' ');
    const dots = points.map(
      ({ at, value }) => `<circle class="dot ${className}" cx="${round(x(at))}" cy="${round(y(value))}" r="3"/>`,
    );
    return `<polyline class="curve ${className}" points="${path}"/>${dense ? '' : dots.join('')}`;
  };
  const content = [
    line('grid', left, y(most), width - right, y(most)),
    line('axis', left, y(0), width - right, y(0)),
    text('tick end', left - 4, y(most) + 4, short(most)),
    text('tick end', left - 4, y(low) + 4, short(low)),
    text('tick', left, height - 4, '0'),
    text('tick end', width - right, height - 4, `step ${last}`),
    step === undefined ? '' : line('mean', x(step), top, x(step), height - bottom),
    ...behind.map((one) => drawn(one, 'faint')),
    drawn(curve, ''),
  ];
  return picture('run', width, height, label, content.join(''));
}

const BOARD = { width: 640, height: 300, left: 44, right: 10, top: 12, bottom: 26 };

/**
 * Draws curves of many runs, their mean, and a band around it. A line connects the measured values of a curve across steps without a value.
 */
export function boardPlot(
  curves: readonly Curve[],
  band: readonly { mean: number | null; low: number | null; high: number | null }[],
  label: string,
): string {
  const { width, height, left, right, top, bottom } = BOARD;
  const values = [...curves.flat(), ...band.flatMap(({ low, high }) => [low, high])].filter((value) => value !== null);
  const [lowest, highest] = [Math.min(0, ...values), Math.max(1e-9, ...values)];
  const last = Math.max(1, band.length - 1);
  const x = (at: number) => left + (at / last) * (width - left - right);
  const y = (value: number) => height - bottom - ((value - lowest) / (highest - lowest)) * (height - top - bottom);
  const points = (curve: Curve) =>
    curve.flatMap((value, at) => (value === null ? [] : [`${round(x(at))},${round(y(value))}`]));
  const around = [...points(band.map(({ high }) => high)), ...points(band.map(({ low }) => low)).toReversed()];
  const content = [
    line('grid', left, y(highest), width - right, y(highest)),
    line('axis', left, y(0), width - right, y(0)),
    text('tick end', left - 4, y(highest) + 4, values.length === 0 ? '' : short(highest)),
    text('tick end', left - 4, y(lowest) + 4, short(lowest)),
    text('tick end', width - right, height - 6, `step ${last}`),
    curves.length > 1 ? `<polygon class="band" points="${around.join(' ')}"/>` : '',
    ...curves.map((curve) => `<polyline class="curve one" points="${points(curve).join(' ')}"/>`),
    `<polyline class="curve all" points="${points(band.map(({ mean }) => mean)).join(' ')}"/>`,
  ];
  return picture('board', width, height, label, content.join(''));
}

/** A curve over steps. Its values are null at steps where nothing was measured. */
export interface NamedCurve {
  name: string;
  /** CSS class of the line: curve, curve-a, curve-b, curve-c, faint, guess. */
  className: string;
  /** Step and value of each point. */
  points: readonly (readonly [number, number])[];
  /** Lower and upper edge of a band at each point, drawn as an area. */
  band?: readonly (readonly [number, number, number])[];
}

interface CurvesOptions {
  /** Last step. */
  steps: number;
  /** Range of the vertical axis. */
  y: readonly [number, number];
  /** Name of the vertical axis. */
  of: string;
  /** Step that is marked by a vertical line. */
  at?: number | undefined;
  height?: number;
}

/** Scales of curvesPlot: from a step or a value to pixels, and back. */
export function curvesScale({ steps, y: [low, high], height = 220 }: CurvesOptions) {
  const { width, left, right, top } = CHART;
  const floor = height - 34;
  const x = (step: number) => left + 8 + (step / steps) * (width - left - 8 - right);
  const y = (value: number) => floor - ((value - low) / (high - low)) * (floor - top);
  return {
    ...{ width, height, x, y },
    stepAt: (pixel: number) => ((pixel - left - 8) / (width - left - 8 - right)) * steps,
    valueAt: (pixel: number) => low + ((floor - pixel) / (floor - top)) * (high - low),
  };
}

/** Draws curves over steps. Each has its name at its end, unless there is only one. */
export function curvesPlot(curves: readonly NamedCurve[], options: CurvesOptions, label: string): string {
  const { steps, y: range, of, at } = options;
  const { width, height, x, y } = curvesScale(options);
  const within = (value: number) => y(Math.max(range[0], Math.min(range[1], value)));
  const path = (points: readonly (readonly [number, number])[]) =>
    points.map(([step, value]) => `${round(x(step))},${round(within(value))}`).join(' ');
  const grid = [range[0], (range[0] + range[1]) / 2, range[1]].flatMap((value) => [
    line('grid', x(0), y(value), x(steps), y(value)),
    text('tick end', x(0) - 4, y(value) + 4, short(value)),
  ]);
  const marks = [0, steps / 2, steps].map((step) =>
    text('tick middle', x(step), height - 20, String(Math.round(step))),
  );
  const areas = curves.flatMap(({ band, className }) => {
    if (!band) return [];
    const upper = band.map(([step, , high]) => [step, high] as const);
    const lower = band.map(([step, low]) => [step, low] as const).reverse();
    return `<polygon class="area ${className}" points="${path([...upper, ...lower])}"/>`;
  });
  const lines = curves.map(
    ({ className, points }) => `<polyline class="curve ${className}" points="${path(points)}"/>`,
  );
  const ends = apart(
    curves.flatMap(({ name, points }) => (points.length > 0 ? { name, y: within(points.at(-1)![1]) } : [])),
  );
  const names = curves.length > 1 ? ends.map((end) => text('tick end', x(steps), end.y - 6, end.name)) : [];
  const content = [
    ...grid,
    ...marks,
    ...areas,
    at === undefined ? '' : line('mean', x(at), y(range[0]), x(at), y(range[1])),
    ...lines,
    ...names,
    text('tick', 0, 11, of),
    text('tick middle', x(steps / 2), height - 4, 'step'),
  ];
  return picture('plot', width, height, label, content.join(''));
}

/** Moves overlapping names apart. */
function apart(ends: { name: string; y: number }[]): { name: string; y: number }[] {
  const sorted = ends.toSorted((a, b) => b.y - a.y);
  for (let i = 1; i < sorted.length; i++) sorted[i].y = Math.min(sorted[i].y, sorted[i - 1].y - 13);
  return sorted;
}

/** Draws shares of a whole as one bar, with the name and size of each part below. */
export function sharesPlot(parts: readonly { name: string; value: number; shown: string }[], label: string): string {
  const total = parts.reduce((sum, { value }) => sum + value, 0);
  const { width } = CHART;
  let from = 0;
  const content = parts.map(({ name, value, shown }, i) => {
    const size = (value / total) * width;
    const box = `<rect class="part-${i}" x="${round(from)}" y="4" width="${round(size)}" height="26"/>`;
    from += size;
    const row = 50 + 18 * i;
    const key = `<rect class="part-${i}" x="0" y="${row - 10}" width="12" height="12"/>`;
    return box + key + text('', 18, row, name) + text('end', width, row, shown);
  });
  return picture('shares', width, 50 + 18 * parts.length - 8, label, content.join(''));
}
