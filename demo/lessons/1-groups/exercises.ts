/** Exercises of lesson 1. */

import { keyedRng } from '../../../src/tasks/random.ts';
import type { CodeExercise, Exercise, NumbersExercise, TickExercise } from '../kit/checks.ts';
import { advantagesBy } from '../kit/recordings.ts';

/**
 * Relative difference below which two advantages count as equal. The effect of the small constant that prevents a division 0 / 0 is smaller
 * than that.
 */
const CLOSE = 1e-3;

const close = (a: unknown, b: number): boolean =>
  typeof a === 'number' && Math.abs(a - b) <= CLOSE * Math.max(1, Math.abs(b));

const ONE_OF_EIGHT = [1, 0, 0, 0, 0, 0, 0, 0];
const SAME = [Array(8).fill(1), Array(8).fill(0), Array(4).fill(0.3)] as number[][];
const MISSING = [
  [1, NaN, 0, 0],
  [NaN, 0.5, 0.25, NaN],
  [NaN, 1, NaN, NaN],
];

/** Test groups of 2 to 16 tries. A third of the groups contain a try without a reward. */
function drawnGroups(): number[][] {
  const rng = keyedRng('lesson 1');
  return Array.from({ length: 100 }, (_, g) => {
    const group = Array.from({ length: rng.int(2, 16) }, () => rng.int(0, 4) / 4);
    if (g % 3 === 0) group[rng.int(0, group.length - 1)] = NaN;
    return group;
  });
}

const GROUPS = [ONE_OF_EIGHT, [1, 0, 1, 1, 0, 0, 0, 1], [1, 0], ...SAME, ...MISSING, ...drawnGroups()];

/** Formats numbers as a reader would write them. */
const shown = (values: readonly unknown[]): string =>
  `[${values
    .map((value) => {
      if (typeof value !== 'number') return String(value);
      return Number.isInteger(value) ? `${value}` : value.toFixed(3).replace(/^(-?\d+\.\d*?)0+$/, '$1');
    })
    .join(', ')}]`;

const isSilent = (group: readonly number[]): boolean =>
  new Set(group.filter((reward) => !Number.isNaN(reward))).size < 2;

/** Returns the sentence for the first group on which the reader's function differs from the library. */
function judgeAdvantages(results: readonly unknown[]): string | undefined {
  for (const [g, group] of GROUPS.entries()) {
    const [own, library] = [results[g], advantagesBy('grpo', group)];
    if (!Array.isArray(own) || own.length !== group.length)
      return `advantages(${shown(group)}) returned ${Array.isArray(own) ? `${own.length} numbers` : String(own)}. Return a list with one number for each of the ${group.length} tries.`;
    if (own.every((value, i) => close(value, library[i]))) continue;
    if (own.some((value) => typeof value !== 'number'))
      return `For the rewards ${shown(group)} yours gives ${JSON.stringify(own)}. Return numbers only.`;
    const known = group.flatMap((reward, i) => (Number.isNaN(reward) ? [] : [own[i] as number]));
    if (isSilent(group) && !known.every((value) => close(value, 0))) {
      const [value] = shown(known).slice(1, -1).split(', ');
      if (known.length === 1)
        return `Of ${shown(group)} one try has a reward, and yours gives it ${value}. It has nothing to be compared with. Return 0.`;
      return `All ${known.length} tries earned ${Math.max(...group)}, and yours gives [${value}]${value === 'NaN' ? ': that is 0 / 0' : ''}. What can a group teach that agrees? Return 0 for each try.`;
    }
    if (known.some(Number.isNaN))
      return 'One try has no reward, so your mean is NaN, and the whole group is lost. Leave that try out of mean and spread, and give it 0.';
    if (own.some(Number.isNaN) && group.every((reward, i) => Number.isNaN(reward) || close(own[i], library[i])))
      return `For the rewards ${shown(group)} yours gives ${shown(own)}. The tries with a reward are right. Give 0 to a try without one.`;
    const byN = library.map((a) => a * Math.sqrt(group.length / (group.length - 1)));
    if (own.every((value, i) => close(value, byN[i])))
      return `${byN[0].toFixed(3)} where the library has ${library[0].toFixed(3)}, for one right of eight. You divide the squares by n, and verl and TRL divide them by n - 1.`;
    return `For the rewards ${shown(group)} yours gives ${shown(own)}. The library gives ${shown(library)}.`;
  }
  return undefined;
}

const body = (known: string, spread: string, guard: string) => `export function advantages(rewards) {
  const known = ${known};
  const mean = known.reduce((a, b) => a + b, 0) / known.length;
  const squares = known.reduce((a, r) => a + (r - mean) ** 2, 0);
  const spread = Math.sqrt(squares / ${spread});
  return rewards.map((r) => ${guard});
}
`;

const LEFT_OUT = 'rewards.filter((r) => !Number.isNaN(r))';
const GUARD = '(Number.isNaN(r) || !(spread > 1e-9) ? 0 : (r - mean) / spread)';

const WRITE: CodeExercise = {
  kind: 'code',
  id: '1.1',
  title: 'Write the advantages of a group',
  task:
    'Finish the function. It gets the rewards of one group and returns one advantage for each try: the reward minus the mean, divided by ' +
    'the spread (the standard deviation). A reward can be NaN, which means that the try has none. Three decimals are enough.',
  name: 'advantages',
  start: `// rewards: one number for each try of a group, such as [1, 0, 0, NaN].
// NaN means: this try has no reward.
export function advantages(rewards) {
  const mean = 0; // the mean of the rewards
  const spread = 1; // their standard deviation
  return rewards.map((r) => (r - mean) / spread);
}
`,
  answer: body(LEFT_OUT, '(known.length - 1)', GUARD),
  hint: 'Three things are easy to miss: the squares are divided by n - 1, a group in which all agree has spread 0, and NaN spoils every sum.',
  why: `All ${GROUPS.length} groups agree with the library, also the ones that agree and the ones with a missing reward.`,
  calls: GROUPS.map((group) => [group]),
  judge: judgeAdvantages,
  wrong: [
    {
      given: body(LEFT_OUT, 'known.length', GUARD),
      says: '2.646 where the library has 2.475, for one right of eight. You divide the squares by n, and verl and TRL divide them by n - 1.',
    },
    {
      given: body(LEFT_OUT, '(known.length - 1)', '(Number.isNaN(r) ? 0 : (r - mean) / spread)'),
      says: 'All 8 tries earned 1, and yours gives [NaN]: that is 0 / 0. What can a group teach that agrees? Return 0 for each try.',
    },
    {
      given: body('rewards', '(known.length - 1)', '(spread === 0 ? 0 : (r - mean) / spread)'),
      says: 'One try has no reward, so your mean is NaN, and the whole group is lost. Leave that try out of mean and spread, and give it 0.',
    },
  ],
};

/** Groups of the exercise, by the letter of their checkbox. */
const TICKED: Record<string, number[]> = {
  a: [0.3, 0.3, 0.3, 0.3],
  b: [0, 0, 0, 0],
  c: [0.1, 0.1, 0.1, 0.2],
  d: [1, 1, 1, 1],
  e: [0.6, NaN, NaN, NaN],
  f: [1, 0, 0, 1],
};

const SILENT = Object.keys(TICKED).filter((id) => advantagesBy('grpo', TICKED[id]).every((a) => a === 0));

const steep = advantagesBy('grpo', TICKED['c'])[3];

/** Sentence about each group, shown if its box is ticked or left empty by mistake. */
const ABOUT: Record<string, string> = {
  a: 'The group of 0.3s is missing. 0.3 against 0.3 is a draw, so nothing is left to learn from.',
  b: 'The group of 0s is missing. No try did better than the others, so no try is pushed.',
  c: `0.1, 0.1, 0.1, 0.2 is ticked. The difference is small, but it is the only one: divided by the spread it is +${steep.toFixed(1)}.`,
  d: 'The group of 1s is missing. All are right, and none is better than the others.',
  e: 'The group with one reward is missing. That try has nothing to be compared with.',
  f: '1, 0, 0, 1 is ticked. Two tries did better than the other two: this is what a group learns most from.',
};

const TICK: TickExercise = {
  kind: 'ticks',
  id: '1.2',
  title: 'Find the silent groups',
  task: 'Tick every group whose update is zero, with GRPO. "none" means that a try has no reward.',
  options: Object.entries(TICKED).map(([id, rewards]) => ({
    id,
    label: rewards.map((reward) => (Number.isNaN(reward) ? 'none' : reward)).join(', '),
  })),
  answer: SILENT,
  hint: 'Do not ask how high a reward is. Ask whether two tries of the group differ.',
  why: 'A group is silent if all its known rewards are equal, whatever they are.',
  judge: (ticked) => {
    const wrong = Object.keys(TICKED).filter((id) => ticked.includes(id) !== SILENT.includes(id));
    return wrong.length === 0 ? undefined : ABOUT[wrong[0]];
  },
  wrong: [
    { given: SILENT.filter((id) => id !== 'a'), says: ABOUT['a'] },
    { given: [...SILENT, 'c'], says: ABOUT['c'] },
    { given: SILENT.filter((id) => id !== 'e'), says: ABOUT['e'] },
  ],
};

const near = (given: readonly number[], to: readonly number[]): boolean =>
  to.every((value, i) => Math.abs(given[i] - value) <= 0.005);

const rloo = advantagesBy('rloo', ONE_OF_EIGHT).slice(0, 2);
const grpo = advantagesBy('grpo', ONE_OF_EIGHT);

const RLOO_WRONG = [
  {
    given: [0.875, -0.125],
    says: 'That is the reward minus the mean of all eight. Your own reward is in that mean: leave it out, or multiply by n / (n - 1).',
  },
  {
    given: [grpo[0], grpo[1]],
    says: 'That is GRPO, which divides by the spread. RLOO only takes the mean of the other tries off.',
  },
  {
    given: [1, 0],
    says: 'The first number is right. But among the seven others of a wrong try is a right one, so their mean is not 0.',
  },
];

const NUMBERS: NumbersExercise = {
  kind: 'numbers',
  id: '1.3',
  title: 'RLOO by hand',
  task:
    'RLOO compares each try with the mean of the other tries of its group, and divides by nothing. One of eight tries is right (reward 1), ' +
    'seven are wrong (reward 0). What are the two advantages? Three decimals are enough.',
  fields: ['of the right try', 'of a wrong try'],
  answer: [rloo[0], Number(rloo[1].toFixed(3))],
  hint: 'Take the eight rewards and cross out the try that you look at. What is the mean of the seven that are left?',
  why: 'The others of the right try have mean 0, and the others of a wrong try have mean 1/7.',
  judge: (given) => {
    if (near(given, rloo)) return undefined;
    const known = RLOO_WRONG.find((one) => near(given, one.given));
    if (known) return known.says;
    if (near([given[0], -given[1]], rloo)) return 'A wrong try did worse than the others, so its number is below 0.';
    return near(given.slice(0, 1), rloo.slice(0, 1))
      ? 'The first number is right. Look at the second: the mean of the other seven, taken from 0.'
      : 'Neither is the reward minus the mean of the other seven. Begin with the right try: its seven others all earned 0.';
  },
  wrong: RLOO_WRONG,
};

export const EXERCISES: readonly Exercise[] = [WRITE, TICK, NUMBERS];
