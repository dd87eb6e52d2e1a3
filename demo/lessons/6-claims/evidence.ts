/** Statistics of recorded outcomes: evaluations drawn from them, pass@k, the best of several evaluations, and p-values of seeds. */

import { passAtK } from '../../../src/grpo/metrics.ts';
import { mulberry32 } from '../../../src/model/random.ts';
import { passInterval, type PassInterval } from '../../../src/report/passInterval.ts';

/** Outcome of each try by problem, 1 = right. */
export type Outcomes = readonly (readonly number[])[];

/** Tries per problem in the recording. */
export const TRIES = 32;
/** Evaluations that a figure draws. */
export const DRAWS = 200;

/** Reads outcomes as stored: eight hexadecimal digits per problem, the first try is the highest bit. */
export const unpacked = (hex: string): number[][] =>
  Array.from({ length: hex.length / 8 }, (_, p) => {
    const bits = Number.parseInt(hex.slice(8 * p, 8 * p + 8), 16);
    return Array.from({ length: TRIES }, (_, t) => (bits >>> (TRIES - 1 - t)) & 1);
  });

const meanOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

export const rateOf = (outcomes: Outcomes): number => meanOf(outcomes.map(meanOf));

/** Draws an evaluation out of recorded outcomes: random problems, which can repeat, and so many of each one's tries, which cannot. */
export function evaluation(outcomes: Outcomes, problems: number, tries: number, uniform: () => number): number[][] {
  const pick = (length: number) => Math.floor(uniform() * length);
  return Array.from({ length: problems }, () => {
    const left = [...outcomes[pick(outcomes.length)]];
    return Array.from({ length: tries }, () => left.splice(pick(left.length), 1)[0]);
  });
}

/** Rates of many evaluations of `problems` problems with one try each, and in how many the interval holds the true rate. */
export interface Resampled {
  rates: number[];
  held: number;
}

/** Draws evaluations. @param truth outcomes to draw from, or a rate */
export function resampled(truth: Outcomes | number, problems: number, seed = 1): Resampled {
  const uniform = mulberry32(seed);
  const rate = typeof truth === 'number' ? truth : rateOf(truth);
  const draw = () => {
    const chance = typeof truth === 'number' ? truth : meanOf(truth[Math.floor(uniform() * truth.length)]);
    return uniform() < chance;
  };
  const counts = Array.from({ length: DRAWS }, () => Array.from({ length: problems }, draw).filter(Boolean).length);
  const holds = new Map([...new Set(counts)].map((right) => [right, isWithin(ofCount(right, problems), rate)]));
  return {
    rates: counts.map((right) => right / problems),
    held: counts.filter((right) => holds.get(right)).length,
  };
}

const isWithin = ({ low, high }: PassInterval, rate: number): boolean => low <= rate && rate <= high;

/** Returns the interval of so many problems right, one try each. */
export const ofCount = (right: number, problems: number): PassInterval =>
  passInterval(Array.from({ length: problems }, (_, i) => [i < right ? 1 : 0]));

/** Returns the interval of a rate that `problems` problems with one try each would show. */
export const ofRate = (rate: number, problems: number): PassInterval =>
  passInterval(Array.from({ length: problems }, () => [rate]));

/** Returns the difference of two rates near `rate` that two evaluations can just show with 95% certainty, by the normal approximation. */
export const shownDifference = (rate: number, problems: number): number =>
  1.959964 * Math.sqrt((2 * rate * (1 - rate)) / problems);

/** Returns the interval that takes every try for a problem of its own. */
export const naiveInterval = (outcomes: Outcomes): PassInterval => passInterval(outcomes.flat().map((one) => [one]));

/** Ways to spend as many tries: problems, and tries of each. */
export const LAYOUTS = [
  [256, 1],
  [64, 4],
  [32, 8],
  [8, 32],
] as const;

/** One evaluation of a layout with both intervals, and how many of the drawn evaluations have an interval that holds the true rate. */
export interface Layout {
  problems: number;
  tries: number;
  byProblem: PassInterval;
  naive: PassInterval;
  heldByProblem: number;
  heldNaive: number;
}

export function layouts(outcomes: Outcomes, seed: number): Layout[] {
  const rate = rateOf(outcomes);
  return LAYOUTS.map(([problems, tries]) => {
    const uniform = mulberry32(seed);
    const drawn = Array.from({ length: DRAWS }, () => evaluation(outcomes, problems, tries, uniform));
    const [both, held] = [
      drawn.map((one) => [passInterval(one), naiveInterval(one)] as const),
      (of: readonly PassInterval[]) => of.filter((one) => isWithin(one, rate)).length,
    ];
    return {
      ...{ problems, tries, byProblem: both[0][0], naive: both[0][1] },
      heldByProblem: held(both.map(([byProblem]) => byProblem)),
      heldNaive: held(both.map(([, naive]) => naive)),
    };
  });
}

const rightOf = (outcomes: Outcomes): number[] => outcomes.map((tries) => tries.reduce((sum, one) => sum + one, 0));

/** Returns pass@k, the mean over problems. */
export const passOf = (outcomes: Outcomes, k: number): number =>
  meanOf(rightOf(outcomes).map((right) => passAtK(TRIES, right, k)));

/** Joins k tries to one attempt, which is right if one of them is. */
export const attempts = (outcomes: Outcomes, k: number): number[][] =>
  outcomes.map((tries) =>
    Array.from({ length: Math.floor(TRIES / k) }, (_, a) => Math.max(...tries.slice(a * k, (a + 1) * k))),
  );

/** Returns the pass rate of each evaluation of the first problems: the first tries, the second tries, ... */
export const evaluations = (outcomes: Outcomes, problems: number): number[] =>
  Array.from({ length: TRIES }, (_, t) => meanOf(outcomes.slice(0, problems).map((tries) => tries[t])));

/** Returns what the best of `count` of these scores is on average, over all ways to choose them. */
export function bestOf(scores: readonly number[], count: number): number {
  const sorted = scores.toSorted((a, b) => b - a);
  // The best is sorted[i] if the i better ones are not chosen.
  let [left, best] = [1, 0];
  for (let i = 0; i <= sorted.length - count; i++) {
    const chosen = count / (sorted.length - i);
    best += left * chosen * sorted[i];
    left *= 1 - chosen;
  }
  return best;
}

/** Returns what the best of `count` evaluations with independent tries reads on average, if all have the same true rate. */
export function bestOfEqual(rate: number, problems: number, count: number): number {
  let [cumulated, logTerm, mean] = [0, problems * Math.log(1 - rate), 0]; // the first term is too small for a number
  for (let right = 0; right <= problems; right++) {
    const before = cumulated;
    cumulated = Math.min(1, cumulated + Math.exp(logTerm));
    mean += (right / problems) * (cumulated ** count - before ** count);
    logTerm += Math.log(((problems - right) / (right + 1)) * (rate / (1 - rate)));
  }
  return mean;
}

/** Returns the smallest two-sided p-value that a permutation test of so many seeds a side can give. */
export const leastP = (seeds: number): number => {
  const splits = Array.from({ length: seeds }, (_, i) => (seeds + i + 1) / (i + 1)).reduce((a, b) => a * b, 1);
  return Math.min(1, 2 / splits);
};
