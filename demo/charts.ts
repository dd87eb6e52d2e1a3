/** Live curves: one chart a figure, its latest value in the header, hover shared by all. */

import type { Metrics } from '../src/grpo/metrics.ts';
import { greedyAcc, passAt1 } from '../src/report/metricOf.ts';
import { el, setText } from '../src/report/page/dom.ts';
import { short, signed } from '../src/report/page/format.ts';
import { drawCharts, type Line, LineChart, type LineData } from '../src/report/page/lineChart.ts';

type Read = (metrics: Metrics) => number | undefined;

interface ChartSpec {
  id: string;
  title: string;
  unit: string;
  /** A sentence about the curve, for a reader who sees it for the first time. */
  hint: string;
  /** The first is the main one: solid, and shown in the header. */
  series: { label: string; read: Read }[];
  /** Lowest and highest value the axis shows at least. */
  atLeast: [number, number];
  digits?: number;
}

const metric =
  (name: string): Read =>
  (metrics) =>
    metrics[name];

const CHARTS: ChartSpec[] = [
  {
    id: 'reward',
    title: 'Reward',
    unit: 'mean per try',
    hint: 'What the tries of a step earned, on average.',
    series: [{ label: 'reward', read: metric('critic/score/mean') }],
    atLeast: [0, 1],
  },
  {
    id: 'pass',
    title: 'pass@1',
    unit: 'share of held-out problems solved',
    hint: 'Problems it never trains on, solved at the first try; dashed: always taking the likeliest token.',
    series: [
      { label: 'sampled', read: passAt1 },
      { label: 'greedy', read: greedyAcc },
    ],
    atLeast: [0, 1],
  },
  {
    id: 'entropy',
    title: 'Entropy',
    unit: 'nats per token',
    hint: 'How undecided the model is at a token; it falls as the model becomes sure.',
    series: [{ label: 'entropy', read: metric('actor/entropy') }],
    atLeast: [0, 0.1],
  },
  {
    id: 'kl',
    title: 'KL',
    unit: 'nats per token',
    hint: 'How far an update moved the model; dashed: how far it is from where it began, where the loss has that term.',
    series: [
      { label: 'to the sampling policy', read: metric('actor/ppo_kl') },
      { label: 'to the reference', read: metric('actor/kl_loss') },
    ],
    atLeast: [0, 0.001],
  },
  {
    id: 'grad',
    title: 'Gradient norm',
    unit: 'before clipping',
    hint: 'Length of the gradient; spikes are steps to look at.',
    series: [{ label: 'norm', read: metric('actor/grad_norm') }],
    atLeast: [0, 0.5],
  },
  {
    id: 'length',
    title: 'Response length',
    unit: 'tokens, tool output included',
    hint: 'Mean length of a try; dashed: shortest and longest tenth.',
    series: [
      { label: 'mean', read: metric('response_length/mean') },
      { label: 'p10', read: metric('response_length/p10') },
      { label: 'p90', read: metric('response_length/p90') },
    ],
    atLeast: [0, 20],
  },
];

class LiveChart {
  readonly figure: HTMLElement;
  readonly chart: LineChart;
  readonly #spec: ChartSpec;
  readonly #value = el('span', 'value');
  readonly #change = el('span', 'change');
  #data: LineData;

  constructor(spec: ChartSpec) {
    this.#spec = spec;
    this.#data = [[], ...spec.series.map(() => [])];
    this.chart = new LineChart({
      lines: spec.series.map(({ label }, s) => lineOf(spec.id, label, s)),
      height: 150,
      legend: false,
      xAtLeast: [0, 5],
      yAtLeast: spec.atLeast,
      sync: 'steps',
      onPointer: (index) => this.#showValue(index),
    });
    const title = el('figcaption', '', el('h2', '', spec.title), el('span', 'unit', spec.unit));
    this.figure = el('figure', 'panel chart', title, el('p', 'numbers', this.#value, this.#change), this.chart.box);
    this.figure.dataset['chart'] = spec.id;
    this.figure.title = spec.hint;
    this.clear();
  }

  clear(): void {
    this.#data = [[], ...this.#spec.series.map(() => [])];
    this.#draw();
  }

  /** A step that has none of the values leaves no point. */
  add(metrics: Metrics): void {
    const values = this.#spec.series.map(({ read }) => read(metrics));
    if (values.every((value) => value === undefined)) return;
    const [steps, ...series] = this.#data;
    steps.push(metrics['training/global_step']);
    values.forEach((value, s) => series[s].push(value ?? null));
    this.#draw();
  }

  #draw(): void {
    this.figure.dataset['points'] = String(this.#data[0].length);
    this.chart.data = this.#data;
    this.#showValue(null);
  }

  /** The latest value and its change since the first, or the value under the pointer. */
  #showValue(index: number | null): void {
    const [steps, main] = this.#data;
    const known = main.flatMap((value, i) => (value === null ? [] : [i]));
    const shown = index ?? known.at(-1);
    const value = shown === undefined ? null : (main[shown] ?? null);
    setText(this.#value, value === null ? '\u2013' : short(value));
    const first = main[known[0]] ?? 0;
    const since = index === null && known.length > 1 && value !== null ? signed(value - first) : '';
    setText(
      this.#change,
      index !== null ? `at step ${steps[index]}` : since && `${since} since step ${steps[known[0]]}`,
    );
  }
}

/** The first line of a chart is solid. Evaluations are few, so each is marked. */
function lineOf(chart: string, label: string, s: number): Line {
  const marked = chart === 'pass';
  return s === 0
    ? { label, colour: '--accent', width: 2, points: marked ? 8 : 0 }
    : { label, colour: '--accent', width: 1.25, dash: [4, 4], points: marked ? 6 : 0 };
}

/** All curves of the page. */
export class Charts {
  readonly #charts = CHARTS.map((spec) => new LiveChart(spec));

  constructor(parent: HTMLElement) {
    parent.append(...this.#charts.map(({ figure }) => figure));
    drawCharts(
      this.#charts.map(({ chart }) => chart),
      parent,
    );
  }

  clear(): void {
    this.#charts.forEach((chart) => chart.clear());
  }

  add(metrics: Metrics): void {
    this.#charts.forEach((chart) => chart.add(metrics));
  }
}
