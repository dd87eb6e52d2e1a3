/** One chart: its latest value in the header, the value at a step by pointer or arrow keys, and all values as a table. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import { el, folded, setText, table } from '../../../src/ui/dom.ts';
import { short, signed } from '../../../src/ui/format.ts';
import { type Line, LineChart, type LineData, type Mark } from '../../../src/ui/lineChart.ts';
import type { Along, OtherRun } from '../../state/runs.ts';
import { curvesOf } from './curves.ts';
import type { ChartSpec } from './specs.ts';
import { explained } from '../term.tsx';

/** Data that is the same for all charts. */
export interface Shown {
  history: readonly Metrics[];
  others: readonly OtherRun[];
  marks: readonly Mark[];
  /** End of the axis. */
  last: number;
  along: Along;
}

/** Dash patterns of other runs, by slot. */
export const DASHES = [
  [8, 3],
  [2, 3],
  [10, 3, 2, 3],
  [16, 4],
];

/** Keys that move the pointer, by a number of values or to an end. */
const KEYS: Record<string, number> = {
  ArrowRight: 1,
  ArrowUp: 1,
  ArrowLeft: -1,
  ArrowDown: -1,
  PageUp: 10,
  PageDown: -10,
  End: Infinity,
  Home: -Infinity,
};

/** A chart that is updated while a run trains. */
export class LiveChart {
  readonly figure: HTMLElement;
  readonly chart: LineChart;
  readonly #spec: ChartSpec;
  readonly #value = el('span', 'value');
  readonly #change = el('span', 'change');
  readonly #table = el('div', 'values-table');
  readonly #values = folded('Values', this.#table);
  #others: readonly OtherRun[] = [];
  #data: LineData;
  #pointed: number | null = null;
  #along: Along = 'steps';

  constructor(spec: ChartSpec) {
    this.#spec = spec;
    this.#data = curvesOf(spec, [], []);
    this.chart = new LineChart({
      lines: linesOf(spec, []),
      height: 150,
      legend: false,
      xAtLeast: [0, 5],
      yAtLeast: spec.atLeast,
      sync: 'steps',
      onPointer: (index) => this.#point(index),
    });
    const title = el('h2', '', explained(spec.title, spec.hint));
    const caption = el('figcaption', '', title, el('span', 'unit', spec.unit));
    this.#values.className = 'values';
    this.#values.addEventListener('toggle', () => this.#tabulate());
    const numbers = el('p', 'numbers', this.#value, this.#change);
    this.figure = el('figure', 'panel chart', caption, numbers, this.chart.box, this.#values);
    this.figure.dataset['chart'] = spec.id;
    this.#listen(title);
  }

  show({ history, others, marks, last, along }: Shown): void {
    this.chart.xTo = last;
    this.#along = along;
    this.#data = curvesOf(this.#spec, history, others, along);
    const sameRuns = others.map(({ id }) => id).join() === this.#others.map(({ id }) => id).join();
    this.#others = others;
    this.chart.marks = marks;
    if (sameRuns) this.chart.data = this.#data;
    else this.chart.setLines(linesOf(this.#spec, others), this.#data);
    this.figure.dataset['points'] = String(this.#known(0).length);
    this.#point(null);
    this.#tabulate();
  }

  #listen(title: HTMLElement): void {
    const { box } = this.chart;
    title.id = `chart-${this.#spec.id.replaceAll(/\W/g, '-')}`;
    box.tabIndex = 0;
    box.setAttribute('role', 'slider');
    box.setAttribute('aria-labelledby', title.id);
    box.addEventListener('keydown', (event) => {
      const by = KEYS[event.key];
      const [{ length }] = this.#data;
      if (by === undefined || length === 0) return;
      event.preventDefault();
      const from = this.#pointed ?? length - 1;
      this.chart.point(Math.max(0, Math.min(length - 1, from + by)));
    });
    box.addEventListener('blur', () => this.chart.point(null));
  }

  /** Returns the indices at which a line has a value. */
  #known(line: number): number[] {
    return this.#data[line + 1].flatMap((value, i) => (value === null ? [] : [i]));
  }

  /** Shows the value under the pointer, or the latest value and its change since the first one. */
  #point(index: number | null): void {
    this.#pointed = index;
    const [steps, main] = this.#data;
    const known = this.#known(0);
    const shown = index ?? known.at(-1);
    const value = shown === undefined ? null : (main[shown] ?? null);
    setText(this.#value, value === null ? '\u2013' : short(value));
    const first = main[known[0]] ?? 0;
    const since = index === null && known.length > 1 && value !== null ? signed(value - first) : '';
    setText(
      this.#change,
      index !== null ? `at ${this.#at(steps[index])}` : since && `${since} since ${this.#at(steps[known[0]])}`,
    );
    this.#tellStep(shown);
  }

  #at(place: number): string {
    return this.#along === 'steps' ? `step ${place}` : `${short(place)} s`;
  }

  #tellStep(index: number | undefined): void {
    const { box } = this.chart;
    const [steps, ...lines] = this.#data;
    const text =
      index === undefined
        ? 'no values yet'
        : [
            this.#at(steps[index]),
            ...this.#names().map((name, s) => {
              const value = lines[s][index];
              return value === null ? '' : `${name} ${short(value)}`;
            }),
          ]
            .filter(Boolean)
            .join(', ');
    box.setAttribute('aria-valuemin', String(steps[0] ?? 0));
    box.setAttribute('aria-valuemax', String(steps.at(-1) ?? 0));
    box.setAttribute('aria-valuenow', String(index === undefined ? 0 : steps[index]));
    box.setAttribute('aria-valuetext', text);
  }

  #names(): string[] {
    return [...this.#spec.series.map(({ label }) => label), ...this.#others.map(({ name }) => name)];
  }

  /** Fills the table only while it is open. */
  #tabulate(): void {
    if (!this.#values.open) return;
    const [steps, ...lines] = this.#data;
    const used = this.#names().flatMap((_, s) => (lines[s].some((value) => value !== null) ? [s] : []));
    const cell = (value: number | null) => (value === null ? '\u2013' : short(value));
    const rows = steps.map((step, i) => [String(step), ...used.map((s) => cell(lines[s][i]))]);
    this.#table.replaceChildren(
      table([[this.#along === 'steps' ? 'step' : 'seconds', ...used.map((s) => this.#names()[s])], ...rows.reverse()]),
    );
  }
}

/**
 * Returns the style of each line. The shown run's main line is solid, or faint if a moving average is drawn over it. Each other run has its
 * own colour and dashes.
 */
function linesOf({ series, marked }: ChartSpec, others: readonly OtherRun[]): Line[] {
  return [
    ...series.map(({ label, smooth }, s): Line =>
      smooth
        ? { label, colour: '--accent', width: 2, points: 0 }
        : s === 0 && series.some((other) => other.smooth)
          ? { label, colour: '--accent', width: 1.25, points: 0, opacity: 0.4 }
          : s === 0
            ? { label, colour: '--accent', width: 2, points: marked ? 8 : 0 }
            : { label, colour: '--accent', width: 1.25, dash: [4, 4], points: marked ? 6 : 0 },
    ),
    ...others.map(({ name, slot }): Line => ({
      label: name,
      colour: `--run-${slot}`,
      width: 2,
      dash: DASHES[slot],
      points: marked ? 6 : 0,
    })),
  ];
}
