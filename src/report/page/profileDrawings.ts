/** Draws the charts of profile.html as SVG. */

import type { EventKind } from '../../rollout/agent/events.ts';
import type { Histogram, ProfileReport, SlowSample } from '../profile/profileReport.ts';
import { KINDS } from '../profile/profileStats.ts';
import { el, svg } from '../../ui/dom.ts';

/** Returns the CSS colour of an event kind. The page's style defines it for light and dark. */
export const colourOf = (kind: EventKind): string => `var(--event-${kind})`;

/** Width of every drawing, in units of its viewBox. */
const WIDTH = 1000;

/** Formats milliseconds as seconds. */
export const seconds = (ms: number): string =>
  ms > 0 && ms < 100 ? `${ms.toPrecision(2)} ms` : `${(ms / 1000).toPrecision(3)} s`;

const round = (x: number) => Math.round(x * 10) / 10;

const drawing = (name: string, height: number, ...content: SVGElement[]) =>
  svg('svg', { viewBox: `0 0 ${WIDTH} ${height}`, role: 'img', 'aria-label': name }, ...content);

const label = (x: number, y: number, text: string) => svg('text', { x: round(x), y: round(y) }, text);

/** Creates a bar with a tooltip. */
function bar(x: number, y: number, width: number, height: number, fill: string, tip: string): SVGElement {
  const size = { x: round(x), y: round(y), width: round(width), height: round(height) };
  return svg('rect', { ...size, fill }, svg('title', {}, tip));
}

/** Draws the number of finished samples over time, as one staircase line per step. */
export function completionCurves(steps: ProfileReport['completions']): SVGElement {
  const [height, left] = [260, 40];
  const longest = steps.reduce((most, { times }) => Math.max(most, times.at(-1) ?? 0), 1);
  const x = (ms: number) => round(left + ((WIDTH - left - 20) * ms) / longest);
  const y = (share: number) => round(height - 30 - (height - 50) * share);
  const guides = [0, 0.8, 1].flatMap((share) => [
    svg('line', { class: 'axis', x1: left, x2: WIDTH, y1: y(share), y2: y(share) }),
    label(0, y(share) + 4, `${100 * share}%`),
  ]);
  const marks = [0, 0.5, 1].map((part) =>
    svg('text', { x: x(part * longest), y: height - 8, 'text-anchor': 'middle' }, seconds(part * longest)),
  );
  const curves = steps.flatMap(({ step, times }, i) => {
    const stroke = `hsl(${215 - (175 * i) / Math.max(1, steps.length - 1)} 65% var(--curve-lightness))`;
    const stairs = times.map((ms, n) => `${x(ms)},${y(n / times.length)} ${x(ms)},${y((n + 1) / times.length)}`);
    const points = [`${x(0)},${y(0)}`, ...stairs].join(' ');
    const name = svg('text', { x: left + 8 + i * 80, y: 14, style: `fill: ${stroke}` }, `step ${step}`);
    return [svg('polyline', { fill: 'none', style: `stroke: ${stroke}`, 'stroke-width': 1.5, points }), name];
  });
  return drawing('Share of the samples that were done, over time', height, ...guides, ...marks, ...curves);
}

const sharesText = (shares: ProfileReport['shares'][number]['shares']) =>
  KINDS.flatMap((kind) => (shares[kind] ? `${kind} ${(100 * shares[kind]).toFixed(0)}%` : [])).join(', ');

/** Draws one bar for each row of `rows`, divided by event kind. */
export function shareBars(rows: ProfileReport['shares']): SVGElement {
  const [left, rowHeight] = [70, 24];
  const bars = rows.flatMap(({ label: name, shares }, r) => {
    const y = r * rowHeight;
    let x = left;
    const parts = KINDS.flatMap((kind) => {
      const share = shares[kind] ?? 0;
      const width = (WIDTH - left - 10) * share;
      const start = x;
      x += width;
      if (width === 0) return [];
      const part = bar(start, y, width, 18, colourOf(kind), `${kind} ${(100 * share).toFixed(1)}%`);
      if (width <= 44 || kind === 'wait') return [part];
      return [part, svg('text', { class: 'inside', x: round(start + 6), y: y + 13 }, `${(100 * share).toFixed(0)}%`)];
    });
    return [label(0, y + 13, name), ...parts];
  });
  return drawing(
    `Shares: ${rows.map(({ label: name, shares }) => `${name} ${sharesText(shares)}`).join('; ')}`,
    rows.length * rowHeight,
    ...bars,
  );
}

/** Draws a histogram. Labels each bin with its lowest value if there is space, and the highest bin with its count. */
export function histogramBars(name: string, { low, width, counts }: Histogram): Element {
  if (counts.length === 0) return el('p', '', 'No samples.');
  const [left, top, base] = [20, 10, 120];
  const most = Math.max(...counts);
  const step = Math.min(60, (WIDTH - 2 * left) / counts.length);
  const every = Math.ceil(40 / step);
  const bars = counts.map((n, b) => {
    const first = low + b * width;
    const range = width === 1 ? `${first}` : `${first} to ${first + width - 1}`;
    const height = ((base - top) * n) / most;
    return bar(left + b * step, base - height, step - 1, height, colourOf('decode'), `${range}: ${n}`);
  });
  const names = counts.flatMap((_, b) =>
    b % every === 0 ? [label(left + b * step, base + 15, `${low + b * width}`)] : [],
  );
  const peak = label(left + 4 + (counts.indexOf(most) + 1) * step, top + 12, `${most}`);
  return drawing(`${name}, from ${low}`, base + 20, ...bars, peak, ...names);
}

/** Draws each sample's events on a common time axis. */
export function timelines(samples: readonly SlowSample[]): SVGElement {
  const rowHeight = 34;
  const scale = WIDTH / samples.reduce((most, { end }) => Math.max(most, end), 1);
  const rows = samples.flatMap(({ step, id, tokens, turns, stop, end, events }, r) => {
    const y = r * rowHeight;
    const name = `step ${step}, ${id}: ${tokens} tokens, ${turns} turns, ${stop}, ${seconds(end)}`;
    const bars = events.map(([kind, turn, from, to, gpuMs]) => {
      const gpu = gpuMs === undefined ? '' : `, GPU ${gpuMs} ms`;
      const tip = `${kind}, turn ${turn}: ${round(to - from)} ms${gpu}`;
      return bar(from * scale, y + 15, Math.max(0.5, (to - from) * scale), 14, colourOf(kind), tip);
    });
    return [label(0, y + 11, name), ...bars];
  });
  return drawing('Events of each of the slowest samples, over time', samples.length * rowHeight, ...rows);
}
