/** Tests the interval of a pass rate: Wilson's values, coverage with several tries per problem, and unknown outcomes. */

import { expect, test } from 'vitest';
import { passInterval } from '../../src/report/passInterval.ts';
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

test('the interval holds the true rate in 93 to 97% of 1,000 draws, with tries that agree within a problem', () => {
  const rng = keyedRng('pass-interval');
  let [held, naive] = [0, 0];
  for (let draw = 0; draw < 1000; draw++) {
    // A problem is easy (0.95) or hard (0.45), so its tries agree. The true rate is 0.7.
    const outcomes = Array.from({ length: 64 }, () => {
      const rate = rng.uniform() < 0.5 ? 0.95 : 0.45;
      return Array.from({ length: 8 }, () => Number(rng.uniform() < rate));
    });
    const holds = ({ low, high }: ReturnType<typeof passInterval>) => Number(low <= 0.7 && 0.7 <= high);
    held += holds(passInterval(outcomes));
    naive += holds(passInterval(outcomes.flat().map((one) => [one])));
  }
  expect(held).toBeGreaterThanOrEqual(930);
  expect(held).toBeLessThanOrEqual(970);
  expect(naive).toBeLessThan(900); // tries as units: too narrow
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
