/** Live curves: one uPlot a figure, its latest value in the header, hover shared by all. */

import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import type { Metrics } from '../src/grpo/metrics.ts';
import { el, setText } from './dom.ts';
import { greedyAccuracy, passAt1, short, signed, ticks } from './format.ts';

type Read = (metrics: Metrics) => number | undefined;

interface ChartSpec {
  id: string;
  title: string;
  unit: string;
  /** What the curve tells, for the one who sees it for the first time. */
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
      { label: 'greedy', read: greedyAccuracy },
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

const HEIGHT = 150; // CSS pixels
const STEP_MARKS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

class Chart {
  readonly figure: HTMLElement;
  readonly #spec: ChartSpec;
  readonly #value = el('span', 'value');
  readonly #change = el('span', 'change');
  readonly #box = el('div', 'plot');
  #plot: uPlot | undefined;
  #data: [number[], ...(number | null)[][]];

  constructor(spec: ChartSpec) {
    this.#spec = spec;
    this.#data = [[], ...spec.series.map(() => [])];
    const title = el('figcaption', '', el('h2', '', spec.title), el('span', 'unit', spec.unit));
    this.figure = el('figure', 'panel chart', title, el('p', 'numbers', this.#value, this.#change), this.#box);
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

  /** Anew, with the page's present colours. */
  build(sync: string): void {
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(sync), this.#data as uPlot.AlignedData, this.#box);
  }

  fit(): void {
    const width = this.#box.clientWidth;
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
  }

  #draw(): void {
    this.figure.dataset['points'] = String(this.#data[0].length);
    this.#plot?.setData(this.#data as uPlot.AlignedData);
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

  #options(sync: string): uPlot.Options {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const [low, high] = this.#spec.atLeast;
    const axis = { stroke: colour('--muted'), font: `12px ${colour('--font')}`, ticks: { show: false } };
    const grid = { stroke: colour('--line'), width: 1 };
    return {
      width: this.#box.clientWidth || 320,
      height: HEIGHT,
      legend: { show: false },
      padding: [8, 12, 0, 0],
      cursor: { y: false, points: { size: 7 }, sync: { key: sync }, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: (_, min, max) => [Math.min(min ?? 0, 0), Math.max(max ?? 0, 5)] },
        y: { range: (_, min, max) => [Math.min(min ?? low, low), Math.max((max ?? high) * 1.02, high)] },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 24, space: 60, incrs: STEP_MARKS },
        { ...axis, grid, size: 52, space: 32, values: (_, values) => ticks(values) },
      ],
      series: [{}, ...this.#spec.series.map(({ label }, s) => this.#series(label, s, colour('--accent')))],
      hooks: { setCursor: [(plot) => this.#showValue(plot.cursor.idx ?? null)] },
    };
  }

  #series(label: string, s: number, stroke: string): uPlot.Series {
    const few = this.#spec.id === 'pass';
    const main = { width: 2, points: { show: few, size: 8, fill: stroke } };
    const rest = { width: 1.25, dash: [4, 4], points: { show: few, size: 6 } };
    return { label, stroke, spanGaps: true, ...(s === 0 ? main : rest) };
  }
}

/** All curves of the page. */
export class Charts {
  readonly #charts = CHARTS.map((spec) => new Chart(spec));

  constructor(parent: HTMLElement) {
    parent.append(...this.#charts.map((chart) => chart.figure));
    const build = () => this.#charts.forEach((chart) => chart.build('steps'));
    build();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', build);
    new ResizeObserver(() => this.#charts.forEach((chart) => chart.fit())).observe(parent);
  }

  clear(): void {
    this.#charts.forEach((chart) => chart.clear());
  }

  add(metrics: Metrics): void {
    this.#charts.forEach((chart) => chart.add(metrics));
  }
}
