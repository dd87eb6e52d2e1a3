/** Best, worst and majority-vote score of k answers, estimated by bootstrap like verl's process_validation_metrics. */

import { keyedRng } from '../tasks/random.ts';
import { mean } from './advantages/index.ts';
import { type Metrics, powersUpTo } from './metrics.ts';

const DRAWS = 1000;
const SEED = 42;

/** Outcomes and predictions of the n sampled answers to a problem. */
export interface AnsweredProblem {
  /** [n] outcomes, without NaN. */
  accs: readonly number[];
  /**
   * [n] predicted answers. Undefined = the reward function returned no prediction; such answers vote together, as in verl.
   */
  preds: readonly (string | undefined)[];
}

/**
 * For k = 2, 4, ... n: mean and std over 1000 draws of k answers (with replacement, seeded), averaged over problems, of
 * the best outcome, the worst outcome, and the outcome of the majority vote (`maj`, only if some answer has a
 * prediction). Also `std@n`. Names are verl's: `val-core/` for best and maj at n, `val-aux/` for the rest. Empty for n
 * = 1.
 */
export function bootstrapMetrics(source: string, problems: readonly AnsweredProblem[]): Metrics {
  const n = problems[0]?.accs.length ?? 0;
  if (n < 2) return {};
  const votes = problems.some(({ preds }) => preds.some((pred) => pred !== undefined));
  const metrics: Metrics = { [`val-aux/${source}/acc/std@${n}`]: mean(problems.map(({ accs }) => spread(accs))) };
  for (const k of powersUpTo(n)) {
    const draws = drawsOf(n, k);
    const add = (name: 'best' | 'worst' | 'maj', valuesOf: (problem: AnsweredProblem) => number[]) => {
      const perProblem = problems.map(valuesOf);
      const base = `${k === n && name !== 'worst' ? 'val-core' : 'val-aux'}/${source}/acc/${name}@${k}`;
      metrics[`${base}/mean`] = mean(perProblem.map((values) => mean(values)));
      metrics[`${base}/std`] = mean(perProblem.map(spread));
    };
    add('best', ({ accs }) => draws.map((draw) => Math.max(...draw.map((i) => accs[i]))));
    add('worst', ({ accs }) => draws.map((draw) => Math.min(...draw.map((i) => accs[i]))));
    if (votes) add('maj', (problem) => draws.map((draw) => majority(problem, draw)));
  }
  return metrics;
}

/**
 * Returns the outcome of the first answer with the most frequent prediction. If several predictions are equally
 * frequent, the one drawn first wins.
 */
function majority({ accs, preds }: AnsweredProblem, draw: readonly number[]): number {
  const votes = new Map<string | undefined, { count: number; acc: number }>();
  for (const i of draw) {
    const vote = votes.get(preds[i]);
    if (vote) vote.count++;
    else votes.set(preds[i], { count: 1, acc: accs[i] });
  }
  return [...votes.values()].reduce((best, vote) => (vote.count > best.count ? vote : best)).acc;
}

/** [DRAWS][k] indices of the drawn answers, below n; the same draws for every problem. */
function drawsOf(n: number, k: number): number[][] {
  const rng = keyedRng('bootstrap', SEED, n, k);
  return Array.from({ length: DRAWS }, () => Array.from({ length: k }, () => rng.int(0, n - 1)));
}

/** Population standard deviation, like numpy's default. */
function spread(values: readonly number[]): number {
  const center = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - center) ** 2)));
}
