/**
 * Compares algorithms on one task over several seeds: curves with their range, a table, and the reason if an algorithm missed the target.
 */

import type { TrainConfig } from '../grpo/config/types.ts';
import type { Metrics } from '../grpo/metrics.ts';
import { diagnose } from './doctor.ts';
import { drawableMetric, greedyAcc, PASS_AT_1, passAt1 } from './metricOf.ts';
import { passInterval, type PassInterval, permutationTest } from './passInterval.ts';

/** All runs of one algorithm. `history` has the lines of metrics.jsonl. */
export interface AlgorithmRuns {
  algorithm: string;
  /** Config of one of the algorithm's runs, with defaults filled in. */
  config: TrainConfig;
  /** Names of the loss, the advantage and the aggregation, with defaults filled in. */
  settings: string;
  /** Updates per step. */
  updates?: number;
  /** Number of held-out problems that pass@1 is measured on. Without it pass@1 has no interval. */
  problems?: number;
  /** Runs of the algorithm, by seed. Runs that have no metrics yet are ignored. */
  runs: { seed: number; history: Metrics[] }[];
}

/** Content of compare.html. */
export interface ComparisonReport {
  kind: 'comparison';
  title: string;
  /** Description of the runs and their settings, in sentences. */
  about: string;
  /** Table cells, header first. */
  table: string[][];
  charts: ComparedChart[];
  /** Config that all runs share, as YAML text. */
  config: string;
}

interface Comparison {
  title: string;
  about: string;
  all: readonly AlgorithmRuns[];
  /** pass@1 at or above which the target counts as reached. */
  target: number;
  config: string;
}

/** Returns the content of compare.html. */
export function comparisonReport({ title, about, all, target, config }: Comparison): ComparisonReport {
  return {
    kind: 'comparison',
    title,
    about,
    table: comparedCells(comparedRows(all, target)),
    charts: comparedCharts(all),
    config,
  };
}

const CHARTS: readonly { title: string; metric: string | RegExp }[] = [
  { title: 'held-out pass@1, sampled', metric: PASS_AT_1 },
  { title: 'training samples that are right', metric: 'critic/acc/mean' },
  { title: 'entropy (nats)', metric: 'actor/entropy' },
  { title: 'gradient norm before clipping', metric: 'actor/grad_norm' },
  { title: 'clipped share of tokens', metric: 'actor/pg_clipfrac' },
  { title: 'groups without a signal', metric: 'frac_reward_zero_std' },
  { title: 'response length (tokens)', metric: 'response_length/mean' },
];

/** Curve of one algorithm in one chart. A value is null if no run has one at that step. */
interface Curve {
  label: string;
  mean: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

export interface ComparedChart {
  title: string;
  steps: number[];
  curves: Curve[];
}

/** Returns the charts that have data. They show the mean, lowest and highest value per step, over the seeds that reached it. */
export function comparedCharts(all: readonly Pick<AlgorithmRuns, 'algorithm' | 'runs'>[]): ComparedChart[] {
  return CHARTS.flatMap(({ title, metric }) => {
    const values = all.map(({ runs }) => runs.map(({ history }) => valuesByStep(history, metric)));
    const steps = [...new Set(values.flat().flatMap((byStep) => [...byStep.keys()]))].sort((a, b) => a - b);
    if (steps.length === 0) return [];
    return [{ title, steps, curves: all.map(({ algorithm }, i) => curveOf(algorithm, values[i], steps)) }];
  });
}

function valuesByStep(history: readonly Metrics[], metric: string | RegExp): Map<number, number> {
  const pairs = history.map((line) => [line['training/global_step'], drawableMetric(line, metric)] as const);
  return new Map(pairs.filter((pair): pair is [number, number] => pair[1] !== null));
}

function curveOf(label: string, runs: readonly Map<number, number>[], steps: readonly number[]): Curve {
  const at = steps.map((step) => runs.map((run) => run.get(step)).filter((value) => value !== undefined));
  const each = (f: (values: number[]) => number) => at.map((values) => (values.length > 0 ? f(values) : null));
  return { label, mean: each(mean), low: each((v) => Math.min(...v)), high: each((v) => Math.max(...v)) };
}

interface ComparedRow {
  algorithm: string;
  /** Names of the loss, the advantage and the aggregation, with defaults filled in. */
  settings: string;
  seeds: number;
  /** pass@1 of held-out problems before training, mean over seeds; null if not measured. */
  before: number | null;
  /** pass@1 in the evaluation of the last step, of the runs that have one. */
  after: Spread | null;
  /** 95% interval of `after`, the pass@1 after training, over the held-out problems. Ignores differences between seeds. Null if unknown. */
  interval: PassInterval | null;
  /**
   * p-value of a permutation test over seeds: pass@1 after training against that of the first algorithm. Null for the first one, or if not
   * measured.
   */
  pValue: number | null;
  greedy: Spread | null;
  /** First evaluated step at which the mean over seeds is at least the target. */
  reachedAt: number | null;
  /** Duration of a run in minutes, mean over runs. */
  minutes: number;
  /** Note of the table: an algorithm whose runs are identical, and the reason for missing the target; '' if neither applies. */
  note: string;
}

interface Spread {
  mean: number;
  low: number;
  high: number;
}

/** Returns the table's rows: one per algorithm, computed from its runs that have metrics. */
export function comparedRows(all: readonly AlgorithmRuns[], target: number): ComparedRow[] {
  const finals = all.map(({ runs }) =>
    runs.map(({ history }) => passAt1(stepsOf(history).at(-1) ?? {})).filter(isKnown),
  );
  return all.map(({ algorithm, config, settings, runs, updates, problems = 0 }, i) => {
    const twin = all.slice(0, i).find((other) => areEqual(other.runs, runs));
    const isOfRatio = updates === 1 && twin && afterLoss(twin.settings) === afterLoss(settings);
    const isIdle = runs.every(({ history }) => history.every((line) => (line['actor/grad_norm'] ?? 0) === 0));
    const reason = isIdle
      ? ': no step had a gradient'
      : isOfRatio
        ? ': with one update per step the ratio is 1, set actor.ppoMiniBatchSize lower'
        : '';
    const histories = runs.map(({ history }) => history).filter((history) => history.length > 0);
    const steps = histories.map(stepsOf);
    const after = spread(finals[i]);
    const pValue = i === 0 ? NaN : permutationTest(finals[0], finals[i]);
    const reachedAt = firstAt(histories, target);
    return {
      algorithm,
      settings,
      seeds: histories.length,
      before: spread(histories.map((history) => passAt1(atStart(history))))?.mean ?? null,
      after,
      interval: after && problems > 0 ? passInterval(Array.from({ length: problems }, () => [after.mean])) : null,
      pValue: Number.isNaN(pValue) ? null : pValue,
      greedy: spread(steps.map((lines) => greedyAcc(lines.at(-1) ?? {}))),
      reachedAt,
      minutes: histories.length > 0 ? mean(histories.map(minutesOf)) : 0,
      note: [
        twin ? `bit-identical to ${twin.algorithm}${reason}` : '',
        after === null || reachedAt !== null ? '' : whyBelow(steps, after.mean, config),
      ]
        .filter(Boolean)
        .join('; '),
    };
  });
}

const stepsOf = (history: readonly Metrics[]): Metrics[] =>
  history.filter((line) => line['timing_s/step'] !== undefined);

/** Returns the metrics of step 0, or none if the run had no evaluation before training. */
const atStart = (history: readonly Metrics[]): Metrics =>
  history.find((line) => line['training/global_step'] === 0) ?? {};

const isKnown = (value: number | undefined): value is number => value !== undefined && !Number.isNaN(value);

/**
 * Returns the settings without the name of the loss: advantage and aggregation. If every importance ratio is 1, all losses are equal, but
 * these two can still differ.
 */
const afterLoss = (settings: string): string => settings.replace(/^[^,]*/, '');

/** Metrics that can differ between identical runs: times, and the value of the loss. */
const OWN_METRICS = /^(timing|perf)|^actor\/(pg_|ppo_kl)/;

/** True if all runs of two algorithms have the same samples, gradients and evaluations at every step. */
function areEqual(runs: AlgorithmRuns['runs'], others: AlgorithmRuns['runs']): boolean {
  const isSame = (a: Metrics, b: Metrics) =>
    Object.keys(a).every((name) => OWN_METRICS.test(name) || !(name in b) || Object.is(a[name], b[name]));
  const isEqual = (a: readonly Metrics[], b: readonly Metrics[] = []) =>
    a.length === b.length && a.every((line, i) => isSame(line, b[i]));
  const hasSteps = runs.some(({ history }) => history.some((line) => line['actor/grad_norm'] !== undefined));
  return (
    runs.length === others.length &&
    hasSteps &&
    runs.every(({ seed, history }) => isEqual(history, others.find((run) => run.seed === seed)?.history))
  );
}

function spread(values: readonly (number | undefined)[]): Spread | null {
  const known = values.filter(isKnown);
  if (known.length === 0) return null;
  return { mean: mean(known), low: Math.min(...known), high: Math.max(...known) };
}

function firstAt(histories: readonly Metrics[][], target: number): number | null {
  const [chart] = comparedCharts([{ algorithm: '', runs: histories.map((history) => ({ seed: 0, history })) }]);
  if (chart === undefined || !chart.title.startsWith('held-out')) return null;
  const place = chart.curves[0].mean.findIndex((value, i) => chart.steps[i] > 0 && value !== null && value >= target);
  return place < 0 ? null : chart.steps[place];
}

const minutesOf = (history: readonly Metrics[]): number =>
  history.reduce((sum, line) => sum + (line['timing_s/step'] ?? 0) + (line['timing_s/testing'] ?? 0), 0) / 60;

/** Returns why runs stayed below the target: how they ended, or the cause that `webgrpo doctor` finds in most of these runs. */
export function whyBelow(runs: readonly Metrics[][], after: number, config: TrainConfig): string {
  const best = mean(runs.map((lines) => Math.max(...lines.map((line) => passAt1(line) ?? 0))));
  const late = (from: number, to: number) =>
    mean(
      runs.flatMap((lines) =>
        lines
          .slice(Math.floor(lines.length * from), Math.ceil(lines.length * to))
          .flatMap((line) => line['critic/acc/mean'] ?? []),
      ),
    );
  const rise = late(0.75, 1) - late(0.5, 0.75);
  if (best - after > 0.05) return `fell back from ${best.toFixed(2)}: the updates are too large, lower actor.optim.lr`;
  if (rise > 0.01) return `still rising (+${rise.toFixed(2)} over the last quarter): give it more steps`;
  const causes = runs.flatMap((history) => diagnose({ history, config, samples: [] }).found.map(({ say }) => say));
  const common = causes.find((say) => 2 * causes.filter((other) => other === say).length > runs.length);
  return common ?? 'flat over the last quarter of the steps';
}

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

const header = (first: string | undefined) => [
  'algorithm',
  'loss, advantage, aggregation',
  'seeds',
  'pass@1 before',
  'pass@1 after',
  '95% over problems',
  `p against ${first}`,
  'greedy after',
  'target at step',
  'minutes per run',
  'note',
];

/** Returns the cells of the table, header first. */
function comparedCells(rows: readonly ComparedRow[]): string[][] {
  const number = (value: number | null) => (value === null ? '-' : value.toFixed(3));
  const range = (s: Spread | null, seeds: number) =>
    s === null ? '-' : seeds > 1 ? `${number(s.mean)} (${number(s.low)} to ${number(s.high)})` : number(s.mean);
  const cells = rows.map((row) => [
    row.algorithm,
    row.settings,
    String(row.seeds),
    number(row.before),
    range(row.after, row.seeds),
    row.interval === null ? '-' : `${number(row.interval.low)} to ${number(row.interval.high)}`,
    row.pValue === null ? '-' : row.pValue.toFixed(2),
    range(row.greedy, row.seeds),
    row.reachedAt === null ? '-' : `${row.reachedAt}`,
    row.minutes.toFixed(1),
    row.note,
  ]);
  return [header(rows[0]?.algorithm), ...cells];
}

/** Returns the table as Markdown for docs/. pass@1 is the mean over seeds, with the lowest and highest in brackets. */
export function comparedMarkdown(rows: readonly ComparedRow[]): string {
  const [names, ...cells] = comparedCells(rows);
  return [names, names.map(() => '---'), ...cells].map((row) => `| ${row.join(' | ')} |`).join('\n');
}
