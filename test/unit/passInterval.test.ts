/** Tests intervals of a pass rate and of a difference, and the permutation test: published values, coverage, and unknown outcomes. */

import { expect, test } from 'vitest';
import { pairedDifference, passInterval, permutationTest } from '../../src/report/passInterval.ts';
import { keyedRng } from '../../src/tasks/random.ts';

const once = (right: number, count: number) => Array.from({ length: count }, (_, i) => [i < right ? 1 : 0]);

// Textbook example of Wilson's interval: 10 of 20. The other cases are claims in lesson 6.
test.each([
  [10, 20, 0.299, 0.701],
  [251, 256, 0.955, 0.992],
  [244, 256, 0.92, 0.973],
  [64, 64, 0.943, 1],
  [0, 64, 0, 0.057],
])('%i of %i problems right, one try each', (right, count, low, high) => {
  const found = passInterval(once(right, count));
  expect(found.mean).toBeCloseTo(right / count, 12);
  expect([found.low, found.high].map((end) => Number(end.toFixed(3)))).toEqual([low, high]);
});

const DRAWS = process.env['FULL_TESTS'] === '1' ? 1000 : 300;

test('the interval holds the true rate in 93 to 97% of draws, with tries that agree within a problem', () => {
  const rng = keyedRng('pass-interval');
  let [held, naive] = [0, 0];
  for (let draw = 0; draw < DRAWS; draw++) {
    // Half of the problems are easy (rate 0.95), half are hard (0.45), so the tries of a problem agree more than by chance. The mean rate
    // is 0.7.
    const outcomes = Array.from({ length: 64 }, () => {
      const rate = rng.uniform() < 0.5 ? 0.95 : 0.45;
      return Array.from({ length: 8 }, () => Number(rng.uniform() < rate));
    });
    const holds = ({ low, high }: ReturnType<typeof passInterval>) => Number(low <= 0.7 && 0.7 <= high);
    held += holds(passInterval(outcomes));
    naive += holds(passInterval(outcomes.flat().map((one) => [one])));
  }
  expect(held).toBeGreaterThanOrEqual(0.93 * DRAWS);
  expect(held).toBeLessThanOrEqual(0.97 * DRAWS);
  expect(naive).toBeLessThan(0.9 * DRAWS); // tries as units: too narrow
});

test('repeating the same try adds nothing, and unknown outcomes are left out', () => {
  const single = passInterval(once(40, 64));
  expect(passInterval(once(40, 64).map(([one]) => [one, one, one]))).toEqual({
    mean: expect.closeTo(single.mean, 12),
    low: expect.closeTo(single.low, 2),
    high: expect.closeTo(single.high, 2),
  });
  expect(passInterval([...once(40, 64), [NaN], [NaN, NaN]])).toEqual(single);
  expect(passInterval([[NaN]])).toEqual({ mean: NaN, low: NaN, high: NaN });
});

test('a difference on the same problems has the interval of Newcombe (1998), method 10', () => {
  // Numbers of problems with both right, only the first, only the second, and neither.
  const table = (both: number, first: number, second: number, neither: number) =>
    [
      [1, 1, both],
      [1, 0, first],
      [0, 1, second],
      [0, 0, neither],
    ].flatMap(([a, b, count]) => Array.from({ length: count }, () => [a, b]));
  const of = (rows: number[][]) =>
    pairedDifference(
      rows.map(([a]) => [a]),
      rows.map(([, b]) => [b]),
    );
  // An example of Newcombe's paper, in which his method 10 makes no correction: 0.0569 to 0.3404.
  const { mean, low, high } = of(table(36, 2, 12, 0));
  expect(mean).toBeCloseTo(0.2, 12);
  expect(low).toBeCloseTo(0.0569, 4);
  expect(high).toBeCloseTo(0.3404, 4);
  const same = of(table(30, 0, 0, 20));
  expect([same.mean, same.low, same.high].map((end) => Number(end.toFixed(3)))).toEqual([0, -0.014, 0.014]);
  expect(of([[NaN, 1], ...table(36, 2, 12, 0)])).toEqual(of(table(36, 2, 12, 0)));
  expect(() => pairedDifference([[1]], [])).toThrow(
    'pairedDifference: one side has 1 problems and the other has 0. Pass outcomes of the same problems in the same order.',
  );
});

test('the interval of a difference holds the true one in 93 to 97% of draws, and is narrower than two separate ones', () => {
  const rng = keyedRng('paired-difference');
  let [held, narrower] = [0, 0];
  for (let draw = 0; draw < DRAWS; draw++) {
    const sides = Array.from({ length: 100 }, () => {
      const rate = rng.uniform() < 0.5 ? 0.9 : 0.3; // the second side solves 0.05 more of both kinds
      return [rate, rate + 0.05].map((p) => Array.from({ length: 8 }, () => Number(rng.uniform() < p)));
    });
    const [a, b] = [sides.map(([first]) => first), sides.map(([, second]) => second)];
    const { low, high } = pairedDifference(a, b);
    const [from, to] = [passInterval(a), passInterval(b)];
    held += Number(low <= 0.05 && 0.05 <= high);
    narrower += Number(high - low < Math.hypot(from.high - from.low, to.high - to.low));
  }
  expect(held).toBeGreaterThanOrEqual(0.93 * DRAWS);
  expect(held).toBeLessThanOrEqual(0.97 * DRAWS);
  expect(narrower).toBe(DRAWS);
});

test('the permutation test counts all splits, and draws some of very many', () => {
  expect(permutationTest([1, 2, 3], [4, 5, 6])).toBeCloseTo(0.1, 12); // the least that three seeds a side can reach
  expect(permutationTest([1], [2])).toBe(1);
  expect(permutationTest([1, 2, 3, 4], [5, 6, 7, 8])).toBeCloseTo(2 / 70, 12);
  expect(permutationTest([0.5, 0.5], [0.5, 0.5])).toBe(1);
  const unknown = [permutationTest([0.5, NaN], [0.6, 0.7]), permutationTest([0.5], [NaN]), permutationTest([], [1])];
  expect(unknown).toEqual([NaN, NaN, NaN]);
  expect(permutationTest([], [1])).toBeNaN();
  // Fisher's exact test of 3 of 4 against 1 of 4 is the same as the permutation test on zeros and ones.
  expect(permutationTest([1, 1, 1, 0], [1, 0, 0, 0])).toBeCloseTo(34 / 70, 12);
  const side = (from: number) => Array.from({ length: 12 }, (_, i) => from + i);
  expect(permutationTest(side(0), side(0))).toBe(1);
  expect(permutationTest(side(0), side(3))).toBeCloseTo(0.05, 1);
  expect(permutationTest(side(0), side(12))).toBeLessThan(0.001);
});
