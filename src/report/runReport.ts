/** The content of report.html: the summary of a training run, its curves and a few rollouts. */

import type { Metrics } from '../grpo/metrics.ts';
import { drawableMetric, GREEDY_ACC, PASS_AT_1 } from './metricOf.ts';
import { metricDoc, metricHint } from './metricDocs.ts';
import { type LoggedRollout, type ShownStep, shownRollouts } from '../runs/rollouts.ts';
import { summarizeRun, summaryTable } from './summary.ts';

export interface RunReport {
  kind: 'run';
  /** Name of the run's folder. */
  title: string;
  /** Table that the run printed at its end, as text. */
  summary: string;
  charts: ChartData[];
  rollouts: ShownStep[];
  /** Logged answers of evaluations; empty if trainer.logValGenerations is 0. */
  valRollouts: ShownStep[];
  /** Text of config.yaml. */
  config: string;
}

/** A run as stored in its folder. */
interface LoggedRun {
  name: string;
  metrics: readonly Metrics[];
  rollouts: readonly LoggedRollout[];
  valRollouts: readonly LoggedRollout[];
  config: string;
}

/** Returns the content of report.html. */
export function runReport({ name, metrics, rollouts, valRollouts, config }: LoggedRun): RunReport {
  return {
    kind: 'run',
    title: name,
    summary: summaryTable(summarizeRun(metrics)),
    charts: chartData(metrics),
    rollouts: shownRollouts(rollouts),
    valRollouts: shownRollouts(valRollouts),
    config,
  };
}

/** One chart: its title, and the metrics to draw, each given by name or by a pattern. */
interface Chart {
  title: string;
  series: { label: string; metric: string | RegExp }[];
}

const NAMED_REWARD = /^reward\/(.*)\/mean$/;

const CHARTS: Chart[] = [
  {
    title: 'held-out pass@1',
    series: [
      { label: 'sampled', metric: PASS_AT_1 },
      { label: 'greedy', metric: GREEDY_ACC },
    ],
  },
  { title: 'reward', series: [{ label: 'mean', metric: 'critic/score/mean' }] },
  // The title says "near 0 on policy", because users often ask about this chart. On policy, every ratio is 1, and the advantages of a group
  // sum to about 0.
  { title: 'policy loss (near 0 on policy)', series: [{ label: 'mean', metric: 'actor/pg_loss' }] },
  { title: 'entropy (nats)', series: [{ label: 'mean', metric: 'actor/entropy' }] },
  { title: 'gradient norm', series: [{ label: 'before clipping', metric: 'actor/grad_norm' }] },
  {
    title: 'KL (nats)',
    series: [
      { label: 'old to new policy', metric: 'actor/ppo_kl' },
      { label: 'to the reference', metric: 'actor/kl_loss' },
    ],
  },
  {
    title: 'clipped share of tokens',
    series: [
      { label: 'upper', metric: 'actor/pg_clipfrac' },
      { label: 'dual clip', metric: 'actor/pg_clipfrac_lower' },
    ],
  },
  {
    title: 'response length (tokens)',
    series: [
      { label: 'mean', metric: 'response_length/mean' },
      { label: 'max', metric: 'response_length/max' },
    ],
  },
  { title: 'tool calls per sample', series: [{ label: 'mean', metric: 'tool_call_counts/mean' }] },
  { title: 'loss (nats)', series: [{ label: 'mean per token', metric: 'train/loss' }] },
  {
    title: 'time by phase (s)',
    series: [
      { label: 'generate', metric: 'timing_s/gen' },
      { label: 'update', metric: 'timing_s/update_actor' },
      { label: 'log-probs', metric: 'timing_s/old_log_prob' },
      { label: 'evaluate', metric: 'timing_s/testing' },
      { label: 'sync', metric: 'timing_s/sync' },
    ],
  },
];

/** Returns a line to draw for each named reward, whether from combineRewards, from a task or from a rubric. */
function namedRewards(metrics: readonly Metrics[]): Chart {
  const names = new Set(metrics.flatMap((line) => Object.keys(line).filter((name) => NAMED_REWARD.test(name))));
  const series = [...names].map((metric) => ({ label: NAMED_REWARD.exec(metric)![1], metric }));
  return { title: 'named rewards', series };
}

/** Curves of one chart. The values are in the order of `steps`; null if the metric has no value at a step. */
export interface ChartData {
  title: string;
  /** Meaning of the chart's first metric. */
  hint?: string;
  steps: number[];
  series: { label: string; values: (number | null)[] }[];
}

/** Returns the charts that have data. Skips metrics without a value. */
export function chartData(metrics: readonly Metrics[]): ChartData[] {
  const [top, ...rest] = CHARTS;
  const names = [...new Set(metrics.flatMap(Object.keys))];
  const hintOf = ([{ metric }]: Chart['series']) => {
    const name = typeof metric === 'string' ? metric : names.find((one) => metric.test(one));
    return name !== undefined && metricDoc(name) ? { hint: metricHint(name) } : {};
  };
  return [top, namedRewards(metrics), ...rest].flatMap(({ title, series }) => {
    const drawn = series
      .map(({ label, metric }) => ({ label, values: metrics.map((line) => drawableMetric(line, metric)) }))
      .filter(({ values }) => values.some((value) => value !== null));
    if (drawn.length === 0) return [];
    const used = metrics.map((_, i) => drawn.some(({ values }) => values[i] !== null));
    const keep = <T>(values: readonly T[]) => values.filter((_, i) => used[i]);
    const steps = keep(metrics.map((line) => line['training/global_step']));
    return [
      { title, ...hintOf(series), steps, series: drawn.map(({ label, values }) => ({ label, values: keep(values) })) },
    ];
  });
}
