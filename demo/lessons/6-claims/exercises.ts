/** Exercises of lesson 6. */

import { passAtK } from '../../../src/grpo/metrics.ts';
import { mulberry32 } from '../../../src/model/random.ts';
import type { ChoiceExercise, CodeExercise, Exercise } from '../kit/checks.ts';
import { evaluation, naiveInterval, rateOf } from './evidence.ts';
import { three, TRAINED, TWO_SEEDS } from './stills.ts';

const code = (name: string, args: string, body: string) => `export function ${name}(${args}) {
${body}
}
`;

const upTo = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);

const EVALUATIONS = 400;
/** Number of the EVALUATIONS in which an interval that counts every try as a problem contains the true rate. */
const HELD_BY_TRIES = 345;
/** Number of the EVALUATIONS in which an interval as wide as the spread of the problems' rates contains the true rate. */
const HELD_BY_SPREAD = 400;
/** Number of problems, and of tries per problem, in each evaluation. */
const SIZE = [32, 3] as const;

const uniform = mulberry32(6);
const DRAWN = upTo(1, EVALUATIONS).map(() => evaluation(TRAINED.outcomes, ...SIZE, uniform));
const ALL_RIGHT = upTo(1, 64).map(() => [1]);

const meanOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
/** Width of the interval of each evaluation that counts every try as a problem. */
const NAIVE = () =>
  DRAWN.map((one) => {
    const { low, high } = naiveInterval(one);
    return high - low;
  });
/** Width up to 1 of the interval of each evaluation that has the spread of the problems' rates. */
const SPREADS = () =>
  DRAWN.map((one) => {
    const [rates, p] = [one.map(meanOf), rateOf(one)];
    const half = 1.96 * Math.sqrt(meanOf(rates.map((rate) => (rate - p) ** 2)));
    return Math.min(p + half, 1) - (p - half);
  });

const INTERVAL_WRONG = {
  narrow: (held: number) =>
    `Tries at one problem agree, so your interval is too narrow: it held the true rate in ${held} of ${EVALUATIONS} evaluations. Count problems.`,
  wide: (held: number) =>
    `It held the true rate in ${held} of ${EVALUATIONS} evaluations, which is too often. That is how problems differ, not how sure their mean is.`,
  rarely: (held: number) =>
    `It held the true rate in ${held} of ${EVALUATIONS} evaluations, which is too rarely. It is too narrow, or in the wrong place.`,
  often: (held: number) =>
    `It held the true rate in ${held} of ${EVALUATIONS} evaluations, which is too often. It is wider than the promise needs.`,
  sure: '64 of 64 right gives 1 to 1, as if a mistake were impossible. Wilson says from 0.943.',
};

function judgeInterval(results: readonly unknown[]): string | undefined {
  const ends = results.map((one) => (Array.isArray(one) ? one.map(Number) : []));
  const bad = ends.findIndex((one) => one.length !== 2 || one.some(Number.isNaN) || one[0] > one[1]);
  if (bad >= 0)
    return `interval returned ${JSON.stringify(results[bad])}. Return a list with the lower and the upper end.`;
  const truth = rateOf(TRAINED.outcomes);
  const held = ends.slice(1).filter(([low, high]) => low <= truth && truth <= high).length;
  /** Returns true if the mean width is about that of an interval of known width. The known mistakes have it. */
  const isAsWide = (known: readonly number[]) => {
    const width = meanOf(ends.slice(1).map(([low, high]) => Math.min(high, 1) - low));
    return Math.abs(width / meanOf(known) - 1) < 0.05;
  };
  if (held > 0.97 * EVALUATIONS) return isAsWide(SPREADS()) ? INTERVAL_WRONG.wide(held) : INTERVAL_WRONG.often(held);
  if (ends[0][0] > 0.99) return INTERVAL_WRONG.sure;
  if (held >= 0.93 * EVALUATIONS) return undefined;
  return isAsWide(NAIVE()) ? INTERVAL_WRONG.narrow(held) : INTERVAL_WRONG.rarely(held);
}

const RATES = `  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const rates = outcomes.map(mean);
  const p = mean(rates);
  const variance = mean(rates.map((rate) => (rate - p) ** 2));`;
const WILSON = `  const middle = (p + 1.92 / n) / (1 + 3.84 / n);
  const half = (1.96 / (1 + 3.84 / n)) * Math.sqrt((p * (1 - p)) / n + 0.96 / n ** 2);
  return [middle - half, middle + half];`;

const INTERVAL: CodeExercise = {
  kind: 'code',
  id: '6.1',
  title: 'Write an interval that keeps its promise',
  task: `outcomes[problem][try] is 0 or 1. Return [low, high], which should hold the true rate in 95 of 100 evaluations. The check runs ${EVALUATIONS} evaluations of ${SIZE[0]} problems with ${SIZE[1]} tries, and one with 64 of 64 right.`,
  name: 'interval',
  start: `// The last three lines are Wilson's formula for n independent tries. What is n?
export function interval(outcomes) {
${RATES}
  const n = outcomes.flat().length;
${WILSON}
}
`,
  answer: code(
    'interval',
    'outcomes',
    `${RATES}
  // The mean of n independent tries varies as much as the mean of the problems' rates.
  const n = variance > 0 ? (p * (1 - p) * (outcomes.length - 1)) / variance : outcomes.length;
${WILSON}`,
  ),
  hint: 'The mean of N problems varies by variance / (N - 1). The mean of n independent tries varies by p (1 - p) / n. For which n are they equal?',
  why: "Problems are the units. With one try each, it is Wilson's interval.",
  timeMs: 10_000,
  calls: [[ALL_RIGHT], ...DRAWN.map((one) => [one])],
  judge: judgeInterval,
  wrong: [
    {
      given: code('interval', 'outcomes', `${RATES}\n  const n = outcomes.flat().length;\n${WILSON}`),
      says: INTERVAL_WRONG.narrow(HELD_BY_TRIES),
    },
    {
      given: code(
        'interval',
        'outcomes',
        `${RATES}\n  const half = 1.96 * Math.sqrt(variance / (outcomes.length - 1));\n  return [p - half, p + half];`,
      ),
      says: INTERVAL_WRONG.sure,
    },
    {
      given: code(
        'interval',
        'outcomes',
        `${RATES}\n  const half = 1.96 * Math.sqrt(variance);\n  return [p - half, p + half];`,
      ),
      says: INTERVAL_WRONG.wide(HELD_BY_SPREAD),
    },
  ],
};

const someOf = (n: number) => [...new Set([1, Math.min(2, n), Math.ceil(n / 2), n])];

/** The case of one right try out of eight comes first, because the usual mistakes differ most there. */
const COUNTS: [number, number, number][] = [
  [8, 1, 8],
  ...upTo(1, 32).flatMap((n) => upTo(0, n).flatMap((c) => someOf(n).map((k): [number, number, number] => [n, c, k]))),
  ...[1, 10, 100, 199].flatMap((c) => [1, 50, 150].map((k): [number, number, number] => [200, c, k])),
];

const PASS_WRONG = {
  draws:
    'One right of 8, and all 8 are drawn: you say 0.656, but the right one is drawn for certain. Each draw leaves one try less.',
  any: 'That is pass@n: whether any of the n tries is right. With k below n the right ones can be missed.',
  large: 'At n = 200 yours gives NaN: 171! is too large for a number. Multiply k fractions instead.',
};

function judgePass(results: readonly unknown[]): string | undefined {
  const given = results.map(Number);
  const differs = (i: number) => !(Math.abs(given[i] - passAtK(...COUNTS[i])) < 1e-9);
  const wrong = COUNTS.findIndex((_, i) => differs(i));
  if (wrong < 0) return undefined;
  if (Math.abs(given[0] - 0.656) < 0.001) return PASS_WRONG.draws;
  if (COUNTS.every(([, c], i) => given[i] === (c > 0 ? 1 : 0))) return PASS_WRONG.any;
  const [n, c, k] = COUNTS[wrong];
  if (n === 200 && !Number.isFinite(given[wrong])) return PASS_WRONG.large;
  return `For n = ${n}, c = ${c}, k = ${k} yours gives ${String(results[wrong])}. It is ${three(passAtK(n, c, k))}.`;
}

const FACTORIALS = `  const factorial = (m) => (m < 2 ? 1 : m * factorial(m - 1));
  const choose = (m, j) => (j > m ? 0 : factorial(m) / factorial(j) / factorial(m - j));
  return 1 - choose(n - c, k) / choose(n, k);`;

const PASS: CodeExercise = {
  kind: 'code',
  id: '6.2',
  title: 'Write pass@k',
  task: 'A problem has n tries, and c of them are right. Return the chance that k of the n, drawn at random, hold a right one. The check runs n from 1 to 32, and n = 200.',
  name: 'passAtK',
  start: `// n tries, c of them right. k are drawn, each at most once.
export function passAtK(n, c, k) {
  return 1 - (1 - c / n) ** k;
}
`,
  answer: code(
    'passAtK',
    'n, c, k',
    '  let allWrong = 1;\n  for (let i = 0; i < k; i++) allWrong *= Math.max(0, n - c - i) / (n - i);\n  return 1 - allWrong;',
  ),
  hint: 'Draw one after the other. The chance that the first is wrong is (n - c) / n. Then n - 1 tries are left.',
  why: 'It is the formula that the library uses, and unbiased: the mean over problems is right for any n.',
  calls: COUNTS,
  judge: judgePass,
  wrong: [
    { given: code('passAtK', 'n, c, k', '  return 1 - (1 - c / n) ** k;'), says: PASS_WRONG.draws },
    { given: code('passAtK', 'n, c, k', '  return c > 0 ? 1 : 0;'), says: PASS_WRONG.any },
    { given: code('passAtK', 'n, c, k', FACTORIALS), says: PASS_WRONG.large },
  ],
};

const SENTENCES: Record<string, { label: string; says: string }> = {
  none: {
    label: `"${TWO_SEEDS[0]} against ${TWO_SEEDS[1]} on 256 problems, one seed each: no difference shown"`,
    says: '',
  },
  better: {
    label: '"A is better than B"',
    says: 'The difference is 0.027, give or take 0.031, and there is one seed a side.',
  },
  equal: {
    label: '"A and B are equal"',
    says: 'Not shown is not absent: a true difference of 0.05 would fit as well.',
  },
  faster: {
    label: '"A learns faster than B"',
    says: 'These are the last values. How fast a run learned is not in them.',
  },
};

const CLAIM: ChoiceExercise = {
  kind: 'choice',
  id: '6.3',
  title: 'Choose the sentence',
  task: 'Run A solves 0.980 of 256 held-out problems at its end, and run B 0.953. Each has one seed. Which sentence do the numbers carry?',
  options: ['better', 'none', 'equal', 'faster'].map((id) => ({ id, label: SENTENCES[id].label })),
  answer: 'none',
  hint: 'Problems, seeds and looks: which of them were counted?',
  why: 'A and B are seeds 1 and 2 of the same recipe (docs/lab/results.md). There is nothing that could be better.',
  judge: (chosen) => (chosen === 'none' ? undefined : SENTENCES[chosen]?.says),
  wrong: ['better', 'equal', 'faster'].map((id) => ({ given: id, says: SENTENCES[id].says })),
};

export const EXERCISES: readonly Exercise[] = [INTERVAL, PASS, CLAIM];
