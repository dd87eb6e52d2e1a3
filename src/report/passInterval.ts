/**
 * Confidence intervals of pass rates and of their differences, and a test of the difference between two methods. An interval accounts for
 * the choice of the problems, the test for the differences between seeds.
 */

import { mulberry32 } from '../model/random.ts';

/** Quantile of the normal distribution that leaves 2.5% on each side. */
const Z = 1.959964;

/** A pass rate, or a difference of two, with its 95% interval. */
export interface PassInterval {
  /** The rate or difference itself. */
  mean: number;
  /** Lower end of the interval. */
  low: number;
  /** Upper end of the interval. */
  high: number;
}

/**
 * Returns the pass rate over problems with its 95% interval, by Wilson's formula. If problems have several samples, the formula uses an
 * effective number of independent samples: the number whose mean would vary as much as the problems' means do. It is at least the number of
 * problems and at most the number of samples.
 * @param outcomes [problem][sample], 1 = right; skips samples whose outcome is unknown (NaN), and problems without any other sample
 */
export function passInterval(outcomes: readonly (readonly number[])[]): PassInterval {
  const problems = outcomes.map(knownOf).filter(({ length }) => length > 0);
  const count = problems.length;
  if (count === 0) return { mean: NaN, low: NaN, high: NaN };
  const rates = problems.map(meanOf);
  const mean = meanOf(rates);
  const variance = covariance(rates, rates) / count;
  const tries = sum(problems.map(({ length }) => length));
  const alike = variance === 0 ? count : (mean * (1 - mean)) / variance;
  const n = Math.min(tries, Math.max(count, alike));
  const middle = (mean + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt((mean * (1 - mean)) / n + Z ** 2 / (4 * n ** 2));
  return { mean, low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

/**
 * Returns the pass rate of `b` minus that of `a` on the same problems, with its 95% interval. Combines the two Wilson intervals by the
 * correlation of the problems' rates (Newcombe, 1998, method 10 without its correction of the correlation).
 * @param a outcomes as in `passInterval`, of the same problems in the same order; skips problems whose outcomes are all unknown in `a` or
 * in `b`
 */
export function pairedDifference(a: readonly (readonly number[])[], b: readonly (readonly number[])[]): PassInterval {
  if (a.length !== b.length)
    throw new RangeError(
      `pairedDifference: one side has ${a.length} problems and the other has ${b.length}. Pass outcomes of the same problems in the same order.`,
    );
  const both = a.flatMap((tries, i) => {
    const pair = [knownOf(tries), knownOf(b[i])] as const;
    return pair.every(({ length }) => length > 0) ? [pair] : [];
  });
  const [first, second] = [both.map(([tries]) => tries), both.map(([, tries]) => tries)];
  const [from, to] = [passInterval(first), passInterval(second)];
  const [ratesA, ratesB] = [first.map(meanOf), second.map(meanOf)];
  const spreads = Math.sqrt(covariance(ratesA, ratesA) * covariance(ratesB, ratesB));
  const together = spreads > 0 ? covariance(ratesA, ratesB) / spreads : 0;
  const mean = to.mean - from.mean;
  // Negative values under the root, which can result from rounding, count as 0.
  const reach = (x: number, y: number) => Math.sqrt(Math.max(0, x ** 2 - 2 * together * x * y + y ** 2));
  return {
    mean,
    low: mean - reach(to.mean - to.low, from.high - from.mean),
    high: mean + reach(to.high - to.mean, from.mean - from.low),
  };
}

/** Maximum number of splits for the exact test, which counts all of them. With more splits, this many random ones are counted. */
const MOST_SPLITS = 20_000;

/**
 * Returns the two-sided p-value of the difference between two means. It is the fraction of all ways to split the values into groups of
 * these sizes in which the means differ at least as much. NaN if a side is empty or contains NaN.
 * @param a values of independent runs, such as the final pass@1 of each seed
 */
export function permutationTest(a: readonly number[], b: readonly number[]): number {
  const all = [...a, ...b];
  const total = sum(all);
  if (a.length === 0 || b.length === 0 || Number.isNaN(total)) return NaN;
  const difference = (part: number) => Math.abs(part / a.length - (total - part) / b.length);
  const least = difference(sum(a)) - 1e-9;
  let [splits, reached] = [0, 0];
  const count = (part: number) => {
    splits++;
    if (difference(part) >= least) reached++;
  };
  const choose = (from: number, missing: number, part: number): void => {
    if (missing === 0) return count(part);
    for (let i = from; i <= all.length - missing; i++) choose(i + 1, missing - 1, part + all[i]);
  };
  if (splitsOf(all.length, a.length) <= MOST_SPLITS) choose(0, a.length, 0);
  else {
    const uniform = mulberry32(1);
    count(sum(a));
    while (splits < MOST_SPLITS) count(sum(drawn(all, a.length, uniform)));
  }
  return reached / splits;
}

/** Returns the number of ways to choose k of n values. */
const splitsOf = (n: number, k: number): number =>
  Array.from({ length: k }, (_, i) => (n - i) / (i + 1)).reduce((product, factor) => product * factor, 1);

/** Returns k of the values in random order, each at most once. */
function drawn(values: readonly number[], k: number, uniform: () => number): number[] {
  const left = [...values];
  return Array.from({ length: k }, () => left.splice(Math.floor(uniform() * left.length), 1)[0]);
}

const knownOf = (tries: readonly number[]): number[] => tries.filter((one) => !Number.isNaN(one));

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

const meanOf = (values: readonly number[]): number => sum(values) / values.length;

function covariance(a: readonly number[], b: readonly number[]): number {
  const [meanA, meanB] = [meanOf(a), meanOf(b)];
  return sum(a.map((value, i) => (value - meanA) * (b[i] - meanB))) / Math.max(1, a.length - 1);
}
