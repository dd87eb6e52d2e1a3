/**
 * Templates of the word problems of the task gsm8k-tool. Their texts use few words, so that a small tokenizer has a token for each. Numbers
 * and results are integers of at most four digits.
 */

import type { Rng } from '../random.ts';

export const NAMES = ['Tom', 'Mia', 'Sam', 'Ana', 'Leo', 'Eva', 'Ben', 'Zoe', 'Max', 'Ida'] as const;
export const ITEMS = ['apples', 'books', 'pens', 'cards', 'eggs', 'cakes', 'stamps', 'coins', 'toys', 'cups'] as const;

/** A word problem with placeholders for names, things and numbers. */
export interface Template {
  id: string;
  /** Text with placeholders: {n} and {m} are names, {x} and {y} things, {a} to {e} the numbers. */
  text: string;
  /** Draws the numbers of a problem. The result of every step must be an integer. */
  numbers(rng: Rng): Record<string, number>;
  /** Calculator expressions, one per step, in order; #1 stands for the result of the first step. The last result is the answer. */
  steps: string[];
}

export const TEMPLATES: Template[] = [
  // One step.
  {
    id: 'boxes',
    text: '{n} puts {a} {x} in each of {b} boxes. How many {x} in all?',
    numbers: (r) => ({ a: r.int(2, 30), b: r.int(2, 12) }),
    steps: ['{a}*{b}'],
  },
  {
    id: 'share',
    text: '{n} shares {a} {x} among {b} friends. How many {x} does each friend get?',
    numbers: (r) => quotient(r, 2, 9, 2, 40),
    steps: ['{a}/{b}'],
  },
  {
    id: 'give-away',
    text: '{n} had {a} {x} and gave {b} to {m}. How many {x} are left?',
    numbers: (r) => minus(r, 12, 99),
    steps: ['{a}-{b}'],
  },
  {
    id: 'together',
    text: '{n} has {a} {x} and {m} has {b} {x}. How many {x} do they have together?',
    numbers: (r) => ({ a: r.int(3, 99), b: r.int(3, 99) }),
    steps: ['{a}+{b}'],
  },
  {
    id: 'pack',
    text: '{n} packs {a} {x} in bags of {b}. How many bags are full?',
    numbers: (r) => quotient(r, 2, 9, 2, 40),
    steps: ['{a}/{b}'],
  },
  // Two steps.
  {
    id: 'bags-and-more',
    text: '{n} has {b} bags of {a} {x} and {c} more {x}. How many {x} in all?',
    numbers: (r) => ({ a: r.int(3, 20), b: r.int(2, 9), c: r.int(2, 40) }),
    steps: ['{b}*{a}', '#1+{c}'],
  },
  {
    id: 'change',
    text: '{n} buys {a} {x} at ${b} each and pays ${c}. How much change does {n} get?',
    numbers: (r) => {
      const [a, b] = [r.int(2, 9), r.int(2, 9)];
      return { a, b, c: a * b + r.int(1, 40) };
    },
    steps: ['{a}*{b}', '{c}-#1'],
  },
  {
    id: 'half-as-many',
    text: '{n} sold {a} {x} on Monday and half as many on Friday. How many {x} in all?',
    numbers: (r) => ({ a: 2 * r.int(2, 300) }),
    steps: ['{a}/2', '{a}+#1'],
  },
  {
    id: 'times-as-many',
    text: '{n} has {a} {x}. {m} has {b} times as many. How many {x} do they have together?',
    numbers: (r) => ({ a: r.int(2, 40), b: r.int(2, 9) }),
    steps: ['{a}*{b}', '#1+{a}'],
  },
  {
    id: 'earn-and-spend',
    text: '{n} earns ${a} a day for {b} days and spends ${c}. How much money is left?',
    numbers: (r) => {
      const [a, b] = [r.int(5, 30), r.int(2, 9)];
      return { a, b, c: r.int(2, a * b - 1) };
    },
    steps: ['{a}*{b}', '#1-{c}'],
  },
  {
    id: 'find-and-share',
    text: '{n} had {a} {x}, found {b} more and shares all among {c} friends. How many does each friend get?',
    numbers: (r) => {
      const { a: total, b: c } = quotient(r, 2, 9, 4, 20);
      const b = r.int(2, total - 2);
      return { a: total - b, b, c };
    },
    steps: ['{a}+{b}', '#1/{c}'],
  },
  {
    id: 'broken',
    text: '{n} had {a} {x} but {b} broke. {n} packs the rest in boxes of {c}. How many boxes?',
    numbers: (r) => {
      const { a: rest, b: c } = quotient(r, 2, 9, 2, 12);
      const b = r.int(2, 30);
      return { a: rest + b, b, c };
    },
    steps: ['{a}-{b}', '#1/{c}'],
  },
  {
    id: 'ages',
    text: '{n} is {a} years old. {m} is {b} years older. How old is {m} in {c} years?',
    numbers: (r) => ({ a: r.int(3, 40), b: r.int(2, 20), c: r.int(2, 20) }),
    steps: ['{a}+{b}', '#1+{c}'],
  },
  {
    id: 'empty-seats',
    text: 'A bus has {a} rows of {b} seats and {c} seats are empty. How many seats are full?',
    numbers: (r) => {
      const [a, b] = [r.int(4, 20), r.int(2, 9)];
      return { a, b, c: r.int(2, a * b - 1) };
    },
    steps: ['{a}*{b}', '#1-{c}'],
  },
  {
    id: 'weekly',
    text: '{n} reads {a} pages in {b} days. How many pages does {n} read in {c} days?',
    numbers: (r) => ({ ...quotient(r, 2, 9, 2, 20), c: r.int(3, 30) }),
    steps: ['{a}/{b}', '#1*{c}'],
  },
  // Three steps.
  {
    id: 'two-prices',
    text: '{n} buys {a} {x} at ${b} each and {c} {y} at ${d} each. How much in all?',
    numbers: (r) => ({ a: r.int(2, 9), b: r.int(2, 12), c: r.int(2, 9), d: r.int(2, 12) }),
    steps: ['{a}*{b}', '{c}*{d}', '#1+#2'],
  },
  {
    id: 'two-boxes',
    text: '{n} has {a} boxes of {b} {x} and {m} has {c} boxes of {d}. How many more {x} does {n} have?',
    numbers: (r) => {
      const [c, d] = [r.int(2, 9), r.int(2, 9)];
      return { a: c + r.int(1, 6), b: d + r.int(1, 8), c, d };
    },
    steps: ['{a}*{b}', '{c}*{d}', '#1-#2'],
  },
  {
    id: 'pick-and-pack',
    text: '{n} picks {a} {x} a day for {b} days, gave {c} to {m} and packs the rest in bags of {d}. How many bags?',
    numbers: (r) => {
      const [a, b, d] = [r.int(4, 20), r.int(2, 9), r.int(2, 5)];
      const bags = r.int(1, Math.max(1, Math.floor((a * b - 1) / d)));
      return { a, b, c: a * b - bags * d, d };
    },
    steps: ['{a}*{b}', '#1-{c}', '#2/{d}'],
  },
  {
    id: 'split-cost',
    text: '{n} buys {a} {x} at ${b} each, gets ${c} off and shares the cost with {m}. How much does each pay?',
    numbers: (r) => {
      const [a, b] = [r.int(2, 12), r.int(3, 12)];
      const half = r.int(1, Math.floor((a * b - 1) / 2));
      return { a, b, c: a * b - 2 * half };
    },
    steps: ['{a}*{b}', '#1-{c}', '#2/2'],
  },
  // Four steps.
  {
    id: 'profit',
    text: '{n} sold {a} {x} at ${b} each and {c} {y} at ${d} each, then spends ${e}. How much money is left?',
    numbers: (r) => {
      const [a, b, c, d] = [r.int(2, 9), r.int(2, 9), r.int(2, 9), r.int(2, 9)];
      return { a, b, c, d, e: r.int(2, a * b + c * d - 1) };
    },
    steps: ['{a}*{b}', '{c}*{d}', '#1+#2', '#3-{e}'],
  },
];

/** Draws numbers a and b for which a / b is an integer from lowResult to highResult. */
function quotient(rng: Rng, low: number, high: number, lowResult: number, highResult: number) {
  const b = rng.int(low, high);
  return { a: b * rng.int(lowResult, highResult), b };
}

/** Draws numbers a and b for which a - b is at least 1. */
function minus(rng: Rng, low: number, high: number) {
  const a = rng.int(low, high);
  return { a, b: rng.int(2, a - 1) };
}
