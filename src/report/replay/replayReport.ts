/** Content of replay.html: several losses, or another reward, computed from the stored samples of a run. */

import type { KeptStep, LossComparison, RescoredStep } from '../../extensions/replay/index.ts';
import type { TokenNumbers } from '../../grpo/update/tokenNumbers.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import { spreadOut } from '../../runs/rollouts.ts';
import type { ChartData } from '../runReport.ts';

/** A number for JSON: null instead of NaN, which JSON does not have. */
type Value = number | null;

export interface ReplayReport {
  kind: 'replay';
  title: string;
  /** Notes for the user, one sentence each. */
  notes: string[];
  charts: ChartData[];
  steps: StepReport[];
  rewards: RescoredStep[];
}

/** Results of several losses for one step. */
export interface StepReport {
  step: number;
  /** Description of the weights with which the losses were computed. */
  weights: string;
  samples: number;
  losses: { name: string; lossMode: string; advEstimator: string; lossAggMode: string; metrics: Metrics }[];
  /** Metrics that the run logged for the step. */
  logged: Metrics;
  cosines: Value[][];
  shown: ShownSample[];
}

export interface ShownSample {
  /** Index in the step. */
  sample: number;
  group: number;
  problem: string;
  score: Value;
  /** Text of each response token. `trained` is true if the token was trained on. */
  tokens: { text: string; trained: boolean }[];
  /** Values of each token under each loss: [loss][token]. */
  losses: { [K in keyof TokenNumbers]: number[] }[];
}

/** Metrics to show in the table and the charts, in this order. */
export const REPLAYED_METRICS = [
  'actor/pg_loss',
  'actor/grad_norm',
  'actor/pg_clipfrac',
  'actor/pg_clipfrac_lower',
  'actor/ppo_kl',
  'actor/kl_loss',
  'actor/eff_sample_size',
];

/**
 * Builds the report of a step.
 * @param count number of samples whose tokens are shown
 * @param textOf returns the text of a token id
 */
export function stepReport(
  { step, samples }: KeptStep,
  { losses, cosines }: LossComparison,
  { weights, logged, count, textOf }: { weights: string; logged: Metrics; count: number; textOf(id: number): string },
): StepReport {
  const moved = samples.flatMap((_, s) =>
    losses.some(({ tokens }) => tokens.grad[s].some((g) => g !== 0)) ? [s] : [],
  );
  const chosen = spreadOut(moved.length > 0 ? moved : samples.map((_, s) => s), count);
  return {
    ...{ step, weights, samples: samples.length, logged, cosines },
    losses: losses.map(({ tokens: _, ...loss }) => loss),
    shown: chosen.map((s) => {
      const { group, problem, reward, trajectory } = samples[s];
      const tokens = Array.from(trajectory.responseIds, (id, t) => ({
        text: textOf(id),
        trained: trajectory.mask[t] === 1,
      }));
      const numbers = losses.map(({ tokens: { ratio, advantage, weight, grad, clipped } }) => ({
        ratio: Array.from(ratio[s]),
        advantage: Array.from(advantage[s]),
        weight: Array.from(weight[s]),
        grad: Array.from(grad[s]),
        clipped: Array.from(clipped[s]),
      }));
      return { sample: s, group, problem: problem.id, score: reward.score, tokens, losses: numbers };
    }),
  };
}

/** Returns the curves of the losses over the replayed steps. Empty if only one step was replayed. */
export function stepCharts(steps: readonly StepReport[]): ChartData[] {
  if (steps.length < 2) return [];
  const { losses } = steps[0];
  const chart = (title: string, valueOf: (step: StepReport, loss: number) => number | null | undefined): ChartData => ({
    title,
    steps: steps.map(({ step }) => step),
    series: losses.map(({ name }, i) => ({ label: name, values: steps.map((step) => finite(valueOf(step, i))) })),
  });
  const charts = REPLAYED_METRICS.map((metric) => chart(metric, ({ losses: all }, i) => all[i].metrics[metric]));
  return [...charts, chart(`cosine with ${losses[0].name}`, ({ cosines }, i) => cosines[0][i])].filter(hasValues);
}

/** Returns the curves of a run whose samples were scored again with another reward. */
export function rewardCharts(rewards: readonly RescoredStep[]): ChartData[] {
  const steps = rewards.map(({ step }) => step);
  const chart = (title: string, series: [label: string, key: keyof RescoredStep][]): ChartData => ({
    title,
    steps,
    series: series.map(([label, key]) => ({ label, values: rewards.map((line) => finite(line[key])) })),
  });
  return [
    chart('critic/score/mean', [
      ['as trained', 'oldScore'],
      ['new', 'newScore'],
    ]),
    chart('correlation', [['of the scores', 'correlation']]),
    chart('shares', [
      ['groups with another best', 'bestChanged'],
      ['advantages of the other sign', 'signFlips'],
    ]),
  ].filter(hasValues);
}

const finite = (value: number | null | undefined): number | null =>
  value !== null && value !== undefined && Number.isFinite(value) ? value : null;

const hasValues = ({ series }: ChartData): boolean =>
  series.some(({ values }) => values.some((value) => value !== null));
