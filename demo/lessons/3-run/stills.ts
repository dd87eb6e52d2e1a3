/**
 * Data of lesson 3, the numbers in its text, and its pictures for readers without JavaScript. Vite puts the pictures into the page's HTML.
 */

import { mean } from '../../../src/grpo/advantages/index.ts';
import { duration, short } from '../../../src/ui/format.ts';
import { type NamedCurve, curvesPlot, sharesPlot } from '../kit/plot.ts';
import type { LoopStep } from '../kit/runLoop.ts';
import data from './recorded.json' with { type: 'json' };

/** Content of recorded.json, which scripts/record-run.mjs writes. */
interface Recorded {
  command: string;
  commit: string;
  adapter: string;
  date: string;
  /** Seconds of each step of the first run, in this order: sampling tries, gradient, optimizer, everything else. */
  seconds: [number, number, number, number][];
  /** Tries at some steps of the first run, one of each problem. */
  tries: Pick<LoopStep, 'step' | 'tries'>[];
  /** The page's recorded run of gsm8k-tool: [step, value] pairs of each metric. */
  whole: { command: string; commit: string; metrics: Record<string, [number, number][]> };
  /** Recorded runs of the loop. The first is the run of figure 3.1. */
  runs: RecordedRun[];
}

/** Values by step; null at a step in which all groups were silent. */
type Values = readonly (number | null)[];

export interface RecordedRun {
  lr: number;
  seed: number;
  reward: number[];
  loss: Values;
  entropy: Values;
  gradNorm: number[];
}

export const RECORDED = data as unknown as Recorded;

export const STEPS = 60;

/** Learning rates of the recorded runs, and the CSS class of each rate's curves. */
export const RATES = [
  { lr: 1e-4, name: '0.0001', className: 'curve-c' },
  { lr: 1e-3, name: '0.001', className: 'curve-a' },
  { lr: 1e-2, name: '0.01', className: 'curve-b' },
] as const;

export type Measure = 'reward' | 'entropy' | 'gradNorm';

/** Measures of a run that a chart shows. `most` is the end of the chart's axis. */
export const MEASURES: Readonly<Record<Measure, { name: string; most: number }>> = {
  reward: { name: 'reward, mean of 256 tries', most: 1 },
  entropy: { name: 'entropy, nats per token', most: 3 },
  gradNorm: { name: 'gradient norm', most: 8 },
};

/** Returns the recorded runs with this learning rate. */
export const runsOf = (lr: number): RecordedRun[] => RECORDED.runs.filter((run) => run.lr === lr);

const known = (values: Values): number[] => values.filter((value) => value !== null);

/** Returns a moving average: at each step the mean of the last five values, without nulls. null if all five are null. */
export const smoothed = (values: Values): (number | null)[] =>
  values.map((_, i) => {
    const near = known(values.slice(Math.max(0, i - 4), i + 1));
    return near.length === 0 ? null : mean(near);
  });

/** Returns the points of a run's curve: step 1 is the first value. */
export const pointsOf = (values: Values): [number, number][] =>
  values.flatMap((value, i) => (value === null ? [] : [[i + 1, value] satisfies [number, number]]));

/** Returns the mean of the last five known values. */
export const last = (values: Values): number => mean(known(values).slice(-5));

/** Returns the mean curve of several runs, smoothed, and a band from the lowest to the highest value. */
export function bandOver(all: readonly Values[], named: Pick<NamedCurve, 'name' | 'className'>): NamedCurve {
  const runs = all.map(smoothed);
  const steps = Array.from({ length: STEPS }, (_, i) => i).flatMap((i) => {
    const values = known(runs.map((run) => run[i]));
    return values.length === 0 ? [] : [{ step: i + 1, values }];
  });
  return {
    ...named,
    points: steps.map(({ step, values }) => [step, mean(values)]),
    band: steps.map(({ step, values }) => [step, Math.min(...values), Math.max(...values)]),
  };
}

/** Returns the curve of a rate's runs. */
export const bandOf = ({ lr, name, className }: (typeof RATES)[number], measure: Measure): NamedCurve =>
  bandOver(
    runsOf(lr).map((run) => run[measure]),
    { name, className },
  );

const first = RECORDED.runs[0];
export const start = mean(first.reward.slice(0, 5));
export const end = last(first.reward);

/** Returns the mean of a measure over the last five steps and all seeds of a learning rate. */
export const endOf = (lr: number, measure: Measure = 'reward'): number =>
  mean(runsOf(lr).map((run) => last(run[measure])));

/** Parts into which the time of a step is split. */
export const PARTS = ['draw the tries', 'gradient', 'optimizer', 'all else: scores, advantages'] as const;

/** Returns how a run's time is split. The first two steps are excluded, because kernels are compiled in them. */
export function timeParts(seconds: readonly (readonly number[])[]) {
  const later = seconds.length > 4 ? seconds.slice(2) : seconds;
  const sums = PARTS.map((_, part) => later.reduce((sum, step) => sum + step[part], 0) / later.length);
  const total = sums.reduce((sum, one) => sum + one, 0);
  return PARTS.map((name, part) => ({
    name,
    value: sums[part],
    shown: `${duration(sums[part])}, ${Math.round((100 * sums[part]) / total)}%`,
  }));
}

const largestLoss = Math.max(
  ...RECORDED.runs.filter(({ lr }) => lr === 1e-3).flatMap(({ loss }) => known(loss).map(Math.abs)),
);
const share = (part: number) => {
  const parts = timeParts(RECORDED.seconds);
  return `${Math.round((100 * parts[part].value) / parts.reduce((sum, { value }) => sum + value, 0))}%`;
};
const wholeAt = (name: string, at: number) => RECORDED.whole.metrics[name].find(([step]) => step === at)![1];

/** Numbers in the lesson's text, by their name in the HTML. */
export const NUMBERS: Readonly<Record<string, string>> = {
  start: start.toFixed(2),
  end: end.toFixed(2),
  'end-slow': endOf(1e-4).toFixed(2),
  'end-same': endOf(1e-3).toFixed(2),
  'end-fast': endOf(1e-2).toFixed(2),
  'entropy-fast': endOf(1e-2, 'entropy').toFixed(2),
  'entropy-same': endOf(1e-3, 'entropy').toFixed(2),
  'fast-2': mean(runsOf(1e-2).map(({ reward }) => reward[1])).toFixed(2),
  loss: largestLoss.toFixed(3),
  'share-draw': share(0),
  'share-gradient': share(1),
  'whole-first': wholeAt('critic/score/mean', 1).toFixed(2),
  'whole-last': wholeAt('critic/score/mean', 80).toFixed(2),
  'whole-loss': wholeAt('actor/pg_loss', 1).toFixed(2).replace('-', '\u2212'),
  'whole-loss-last': wholeAt('actor/pg_loss', 80).toFixed(3).replace('-', '\u2212'),
};

/** A metric of figure 3.3, and the range of its axis. */
export interface ShownMetric {
  id: string;
  title: string;
  metric: string;
  most: number;
  least?: number;
}

/** Metrics of figure 3.3, in the order in which to read them. */
export const METRICS: readonly ShownMetric[] = [
  { id: 'reward', title: 'Reward', metric: 'critic/score/mean', most: 1 },
  { id: 'pass', title: 'pass@1', metric: 'val-core/gsm8k-tool/acc/mean@1', most: 1 },
  { id: 'entropy', title: 'Entropy', metric: 'actor/entropy', most: 0.1 },
  { id: 'kl', title: 'KL', metric: 'actor/ppo_kl', most: 0.004, least: -0.004 },
  { id: 'grad', title: 'Gradient norm', metric: 'actor/grad_norm', most: 1.5 },
  { id: 'length', title: 'Length', metric: 'response_length/mean', most: 60 },
  { id: 'loss', title: 'Loss', metric: 'actor/pg_loss', most: 0.7, least: -0.7 },
];

/** Draws a metric of the recorded run, with a line that marks a step. */
export function metricPlot({ title, metric, least = 0, most }: ShownMetric, at: number | undefined): string {
  const points = RECORDED.whole.metrics[metric];
  const [from, to] = [points.find(([step]) => step > 0)!, points.at(-1)!];
  const label = `${title}: ${short(from[1])} at step ${from[0]}, ${short(to[1])} at step ${to[0]}.`;
  return curvesPlot(
    [{ name: '', className: 'curve-a', points }],
    { steps: 80, y: [least, most], of: '', at, height: 150 },
    label,
  );
}

const rewardCurves = RATES.map((rate) => bandOf(rate, 'reward'));
const inWords = RATES.map(({ lr, name }) => `${name}: ${short(endOf(lr))} at the end`).join('; ');

/** Pictures as HTML, by the number of their figure. */
export const STILLS: Readonly<Record<string, string>> = {
  '3.1': curvesPlot(
    [
      { name: '', className: 'faint', points: pointsOf(first.reward) },
      { name: '', className: 'curve-a', points: pointsOf(smoothed(first.reward)) },
    ],
    { steps: STEPS, y: [0, 1], of: MEASURES.reward.name },
    `Reward of the recorded run: ${short(start)} over its first five steps, ${short(end)} over its last five.`,
  ),
  '3.2': curvesPlot(
    rewardCurves,
    { steps: STEPS, y: [0, 1], of: MEASURES.reward.name },
    `Reward by learning rate, three seeds each. ${inWords}.`,
  ),
  '3.3': METRICS.map((metric) => `<h4>${metric.title}</h4>${metricPlot(metric, undefined)}`).join(''),
  '3.4': sharesPlot(
    timeParts(RECORDED.seconds),
    `Time of a step: ${timeParts(RECORDED.seconds)
      .map(({ name, shown }) => `${name} ${shown}`)
      .join('; ')}.`,
  ),
};
