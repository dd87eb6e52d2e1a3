/** How sure a pass rate is: problems are the units, however many tries each has. */

/** Quantile of the normal distribution that leaves 2.5% on each side. */
const Z = 1.959964;

/** A pass rate with the ends of its interval. */
export interface PassInterval {
  mean: number;
  low: number;
  high: number;
}

/**
 * Returns the pass rate over problems with its 95% interval, by Wilson's formula. With several tries per problem, the number of problems is
 * replaced by the number of independent tries that would vary as much as the problems' means do, which is between the problems and the tries.
 * @param outcomes [problem][try], 1 = right; a try of unknown outcome (NaN) is left out, and so is a problem without any other
 */
export function passInterval(outcomes: readonly (readonly number[])[]): PassInterval {
  const problems = outcomes
    .map((tries) => tries.filter((one) => !Number.isNaN(one)))
    .filter(({ length }) => length > 0);
  const count = problems.length;
  if (count === 0) return { mean: NaN, low: NaN, high: NaN };
  const rates = problems.map((tries) => sum(tries) / tries.length);
  const mean = sum(rates) / count;
  const variance = sum(rates.map((rate) => (rate - mean) ** 2)) / Math.max(1, count - 1) / count;
  const tries = sum(problems.map(({ length }) => length));
  const alike = variance === 0 ? count : (mean * (1 - mean)) / variance;
  const n = Math.min(tries, Math.max(count, alike));
  const middle = (mean + Z ** 2 / (2 * n)) / (1 + Z ** 2 / n);
  const half = (Z / (1 + Z ** 2 / n)) * Math.sqrt((mean * (1 - mean)) / n + Z ** 2 / (4 * n ** 2));
  return { mean, low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
