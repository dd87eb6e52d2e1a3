/** The curves of the page, and their explanations. */

import type { Metrics } from '../../../src/grpo/metrics.ts';
import { asTries } from '../glossary.ts';
import { quickOf } from '../../state/measured.ts';
import { metricHint } from '../../../src/report/metricDocs.ts';
import { greedyAcc, passAt1 } from '../../../src/report/metricOf.ts';

type Read = (metrics: Metrics) => number | undefined;

interface Series {
  label: string;
  read: Read;
  /** True for a moving average over the values, because single steps have few problems. */
  smooth?: boolean;
}

export interface ChartSpec {
  id: string;
  title: string;
  unit: string;
  /** A sentence about the curve, for a reader who sees it for the first time. */
  hint: string;
  /** The first series is the main one: solid, shown in the header, and the only one drawn for other runs. */
  series: Series[];
  /** Lowest and highest value that the axis always includes. */
  atLeast: [number, number];
  /** True if values are rare, so that each is marked. */
  marked?: boolean;
  /** True for a curve that is shown below the timeline. */
  more?: boolean;
}

const metric =
  (name: string): Read =>
  (metrics) =>
    metrics[name];

/** Returns what a metric means, in the words of the page. */
const hintOf = (name: string, lines = ''): string => asTries(`${metricHint(name)} ${lines}`.trim());

export const CHARTS: ChartSpec[] = [
  {
    id: 'reward',
    title: 'Reward',
    unit: 'mean reward per try',
    hint: hintOf('critic/score/mean', 'Faint: single steps. Solid: their moving average.'),
    series: [
      { label: 'reward', read: metric('critic/score/mean') },
      { label: 'smoothed', read: metric('critic/score/mean'), smooth: true },
    ],
    atLeast: [0, 1],
  },
  {
    id: 'pass',
    title: 'pass@1',
    unit: 'share solved',
    hint: hintOf(
      'val-core/set/acc/mean@1',
      'While the reward is replaced: of the first 32 problems. Dashed: greedy decoding.',
    ),
    series: [
      { label: 'sampled', read: (line) => passAt1(line) ?? quickOf(line)?.value },
      { label: 'greedy', read: greedyAcc },
    ],
    atLeast: [0, 1],
    marked: true,
  },
  {
    id: 'entropy',
    title: 'Entropy',
    unit: 'nats per token',
    hint: hintOf('actor/entropy'),
    series: [{ label: 'entropy', read: metric('actor/entropy') }],
    more: true,
    atLeast: [0, 0.1],
  },
  {
    id: 'kl',
    title: 'KL',
    unit: 'nats per token',
    hint: hintOf('actor/ppo_kl', 'Dashed: distance from the start model, if the loss has a KL term.'),
    series: [
      { label: 'to the sampling policy', read: metric('actor/ppo_kl') },
      { label: 'to the reference', read: metric('actor/kl_loss') },
    ],
    atLeast: [0, 0.001],
    more: true,
  },
  {
    id: 'grad',
    title: 'Gradient norm',
    unit: 'before clipping',
    hint: hintOf('actor/grad_norm'),
    series: [{ label: 'norm', read: metric('actor/grad_norm') }],
    more: true,
    atLeast: [0, 0.5],
  },
  {
    id: 'length',
    title: 'Response length',
    unit: 'tokens per try',
    hint: hintOf('response_length/mean', 'Dashed: 10th and 90th percentile.'),
    series: [
      { label: 'mean', read: metric('response_length/mean') },
      { label: 'p10', read: metric('response_length/p10') },
      { label: 'p90', read: metric('response_length/p90') },
    ],
    more: true,
    atLeast: [0, 20],
  },
];

const CRITERION = /^reward\/(.*)\/mean$/;

/** Returns charts of the named rewards, for steps whose samples a judge model has scored with a rubric. */
export function criterionCharts(history: readonly Metrics[]): ChartSpec[] {
  const judged = history.filter((metrics) => metrics['reward/rubric_mass/mean'] !== undefined);
  const names = new Set(judged.flatMap((metrics) => Object.keys(metrics).filter((name) => CRITERION.test(name))));
  return Array.from(names, (name) => ({
    id: name,
    title: CRITERION.exec(name)![1],
    unit: 'named reward, mean per try',
    hint: "One of the run's named rewards: a criterion that the judge decides, or a part of the task's own score.",
    series: [{ label: 'mean', read: metric(name) }],
    atLeast: [0, 1],
  }));
}
