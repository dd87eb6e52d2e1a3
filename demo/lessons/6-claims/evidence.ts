/**
 * Statistics of recorded outcomes: resampled evaluations, pass@k, the best of several evaluations, and p-values of comparisons by seeds.
 */

import { passAtK } from '../../../src/grpo/metrics.ts';
import { mulberry32 } from '../../../src/model/random.ts';
import { pairedDifference, passInterval, type PassInterval } from '../../../src/report/passInterval.ts';

/** Outcomes by problem: one entry per try, 1 = right. */
export type Outcomes = readonly (readonly number[])[];

/** Number of recorded tries per problem. */
export const TRIES = 32;
/** Number of evaluations that a figure simulates. */
export const DRAWS = 200;

/** Decodes stored outcomes: eight hexadecimal digits per problem. The first try is the highest bit. */
export const unpacked = (hex: string): number[][] =>
  Array.from({ length: hex.length / 8 }, (_, p) => {
    const bits = Number.parseInt(hex.slice(8 * p, 8 * p + 8), 16);
    return Array.from({ length: TRIES }, (_, t) => (bits >>> (TRIES - 1 - t)) & 1);
  });

const meanOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

export const rateOf = (outcomes: Outcomes): number => meanOf(outcomes.map(meanOf));

/**
 * Simulates an evaluation by drawing from recorded outcomes: `problems` random problems with replacement, and `tries` tries of each problem
 * without replacement.
 */
export function evaluation(outcomes: Outcomes, problems: number, tries: number, uniform: () => number): number[][] {
  const pick = (length: number) => Math.floor(uniform() * length);
  return Array.from({ length: problems }, () => {
    const left = [...outcomes[pick(outcomes.length)]];
    return Array.from({ length: tries }, () => left.splice(pick(left.length), 1)[0]);
  });
}

/**
 * Simulated evaluations of problems with one try each. `rates`: their pass rates. `held`: number of evaluations whose 95% interval contains
 * the true rate.
 */
export interface Resampled {
  rates: number[];
  held: number;
}

/** Simulates evaluations. @param truth recorded outcomes to draw from, or a true pass rate */
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

/** Returns the interval of a pass rate if `right` of `problems` problems were solved, with one try each. */
export const ofCount = (right: number, problems: number): PassInterval =>
  passInterval(Array.from({ length: problems }, (_, i) => [i < right ? 1 : 0]));

/** Returns the interval around a pass rate that was measured on `problems` problems with one try each. */
export const ofRate = (rate: number, problems: number): PassInterval =>
  passInterval(Array.from({ length: problems }, () => [rate]));

/**
 * Returns the smallest difference between two pass rates near `rate` that two evaluations can show with 95% certainty, by the normal
 * approximation.
 */
export const shownDifference = (rate: number, problems: number): number =>
  1.959964 * Math.sqrt((2 * rate * (1 - rate)) / problems);

/** Returns the interval that wrongly counts every try as a separate problem. */
export const naiveInterval = (outcomes: Outcomes): PassInterval => passInterval(outcomes.flat().map((one) => [one]));

/** Ways to spend the same number of tries: [problems, tries per problem]. */
export const LAYOUTS = [
  [256, 1],
  [64, 4],
  [32, 8],
  [8, 32],
] as const;

/**
 * An evaluation with this number of problems, and of tries per problem. Its interval is computed by problem and, naively, by try.
 * `held...`: number of simulated evaluations whose interval contains the true rate.
 */
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

/** Returns pass@k of each problem. */
const passesOf = (outcomes: Outcomes, k: number): number[] =>
  rightOf(outcomes).map((right) => passAtK(TRIES, right, k));

/** Returns pass@k, the mean over problems. */
export const passOf = (outcomes: Outcomes, k: number): number => meanOf(passesOf(outcomes, k));

/** Returns the difference of two pass@k with its interval, for which a problem has as many samples as `attempts` gives it. */
export function passDifference(before: Outcomes, after: Outcomes, k: number): PassInterval {
  const [a, b] = [before, after].map((outcomes) =>
    passesOf(outcomes, k).map((pass) => Array<number>(Math.floor(TRIES / k)).fill(pass)),
  );
  return pairedDifference(a, b);
}

/** Groups tries into attempts of k tries. An attempt is right if one of its tries is right. */
export const attempts = (outcomes: Outcomes, k: number): number[][] =>
  outcomes.map((tries) =>
    Array.from({ length: Math.floor(TRIES / k) }, (_, a) => Math.max(...tries.slice(a * k, (a + 1) * k))),
  );

/** Returns pass rates on the first `problems` problems: one for all first tries, one for all second tries, ... */
export const evaluations = (outcomes: Outcomes, problems: number): number[] =>
  Array.from({ length: TRIES }, (_, t) => meanOf(outcomes.slice(0, problems).map((tries) => tries[t])));

/** Returns the mean of the best of `count` scores, over all ways to choose `count` of the given scores. */
export function bestOf(scores: readonly number[], count: number): number {
  const sorted = scores.toSorted((a, b) => b - a);
  // The best chosen score is sorted[i] if sorted[i] is chosen and the i better scores are not.
  let [left, best] = [1, 0];
  for (let i = 0; i <= sorted.length - count; i++) {
    const chosen = count / (sorted.length - i);
    best += left * chosen * sorted[i];
    left *= 1 - chosen;
  }
  return best;
}

/** Returns the mean score of the best of `count` evaluations with independent tries, if all evaluations have the same true rate. */
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

/** Returns the smallest two-sided p-value that a permutation test with this number of seeds per side can reach. */
export const leastP = (seeds: number): number => {
  const splits = Array.from({ length: seeds }, (_, i) => (seeds + i + 1) / (i + 1)).reduce((a, b) => a * b, 1);
  return Math.min(1, 2 / splits);
};
