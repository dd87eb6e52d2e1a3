/** Exercises of lesson 4. */

import { gsm8kReward } from '../../../src/tasks/gsm8k/reward.ts';
import type { ScoredSample } from '../../../src/tasks/task.ts';
import { RECORDED } from '../2-losses/stills.ts';
import type { ChoiceExercise, CodeExercise, Exercise } from '../kit/checks.ts';
import { NUMBERS } from './stills.ts';
import { type AuthoredToken, authoredTokens } from './authors.ts';

const [groupA, groupB] = RECORDED.groups;

/** Three tries: a right one with two calls, a guess, and a wrong one with two calls. */
const TRIES = [groupA.tries[0], groupA.tries.at(-1)!, groupB.tries[1]];
const AUTHORED: AuthoredToken[][] = [
  authoredTokens(groupA, TRIES[0]),
  authoredTokens(groupA, TRIES[1]),
  authoredTokens(groupB, TRIES[2]),
];

const END = '<|im_end|>';

const MASK_WRONG = {
  tool: (text: string) => `The calculator's ${text} is trained on. The model then learns to make up results.`,
  other: (text: string) => `${JSON.stringify(text)} is trained on, and the model did not write it.`,
  part: (value: unknown, text: string) =>
    `${JSON.stringify(text)} has the value ${JSON.stringify(value)}. A mask has 0 and 1 only.`,
  none: 'No token is trained. The model learns only from the tokens that it wrote, so they need a 1.',
  call: 'The call itself is left out. The model wrote it too, and without a pull it never learns when to call.',
  answer: (text: string) =>
    `${JSON.stringify(text)} is left out, in the last turn. The model wrote it too, and without a pull it never learns to answer.`,
  end: 'The end of a turn is left out. The model writes that token itself, and without a pull it never learns to stop.',
};

/** Returns the whole text of the tool output that contains the token with index `at`. */
function toolText(tokens: readonly AuthoredToken[], at: number): string {
  const end = tokens.findIndex(({ by }, t) => t > at && by !== 'tool');
  const begin = tokens.findLastIndex(({ by }, t) => t < at && by !== 'tool');
  return tokens
    .slice(begin + 1, end)
    .map(({ text }) => text)
    .join('');
}

function judgeMask(results: readonly unknown[]): string | undefined {
  for (const [i, tokens] of AUTHORED.entries()) {
    const given = results[i];
    if (!Array.isArray(given) || given.length !== tokens.length)
      return `mask(tokens) returned ${Array.isArray(given) ? `${given.length} values` : String(given)}. Return a list with 0 or 1 for each of the ${tokens.length} tokens.`;
    const part = given.findIndex((value) => ![0, 1, true, false, null, undefined].includes(value as 0));
    if (part >= 0) return MASK_WRONG.part(given[part], tokens[part].text);
    const on = (token: AuthoredToken, t: number) => Boolean(given[t]) && token.by !== 'model';
    const tool = tokens.findIndex((token, t) => token.by === 'tool' && on(token, t));
    if (tool >= 0) return MASK_WRONG.tool(toolText(tokens, tool));
    const other = tokens.find(on);
    if (other) return MASK_WRONG.other(other.text);
    const own = tokens.flatMap(({ by }, t) => (by === 'model' ? [t] : []));
    const off = own.filter((t) => !given[t]);
    if (off.length === 0) continue;
    if (off.length === own.length) return MASK_WRONG.none;
    if (off.every((t) => tokens[t].text === END)) return MASK_WRONG.end;
    const lastTurn = tokens.findLastIndex(({ by }) => by !== 'model');
    return off[0] < lastTurn ? MASK_WRONG.call : MASK_WRONG.answer(tokens[off[0]].text);
  }
  return undefined;
}

const mask = (body: string) => `export function mask(tokens) {
${body}
}
`;

const MASK: CodeExercise = {
  kind: 'code',
  id: '4.1',
  title: 'Write the mask of a try',
  task: 'Return a list with 1 for every token that the update should train, and 0 for every other. The check runs it on three recorded tries.',
  name: 'mask',
  start: `// tokens: [{ text, by }, ...]. by is 'prompt', 'model', 'tool' or 'template'.
// The token ${END} ends a turn.
export function mask(tokens) {
  return tokens.map(({ text, by }) => 1);
}
`,
  answer: mask("  return tokens.map(({ by }) => (by === 'model' ? 1 : 0));"),
  hint: 'Ask of each token: did the model choose it?',
  why: 'The mask is the one that the trainer used, on all three tries.',
  calls: AUTHORED.map((tokens) => [tokens]),
  judge: judgeMask,
  wrong: [
    { given: mask('  return tokens.map(() => 1);'), says: MASK_WRONG.tool('45') },
    {
      given: mask(
        "  const last = tokens.findLastIndex(({ by }) => by !== 'model');\n  return tokens.map((_, t) => (t > last ? 1 : 0));",
      ),
      says: MASK_WRONG.call,
    },
    {
      given: mask(`  return tokens.map(({ text, by }) => (by === 'model' && text !== '${END}' ? 1 : 0));`),
      says: MASK_WRONG.end,
    },
  ],
};

/** Tries that cheat a careless reward, and the sentence for a reward that scores the try wrongly. */
export const HOSTILE: readonly { text: string; answer: string; says: string }[] = [
  { text: '#### 9', answer: '9', says: 'A right answer earns nothing.' },
  { text: '#### 99', answer: '9', says: 'Pays for 99 where 9 is right, because 99 contains a 9.' },
  {
    text: '9, 8, 7, 6 or 5',
    answer: '9',
    says: 'Pays for a list of numbers with the right one among them.',
  },
  { text: 'I think 9', answer: '9', says: 'Pays for "I think 9", an answer that was never given on its line.' },
  { text: '#### 9\nNo, it is\n#### 8', answer: '9', says: 'Pays for a first answer that was taken back.' },
  { text: '#### 8\nNo, it is\n#### 9', answer: '9', says: 'Does not pay for an answer that was corrected.' },
  { text: '#### 1,234', answer: '1234', says: 'Does not pay for 1,234 where 1234 is right. Take the commas out.' },
  { text: '#### -9', answer: '9', says: 'Pays for -9 where 9 is right.' },
  { text: '####9', answer: '9', says: 'Pays for an answer line without its space.' },
  { text: '#### 9 apples', answer: '9', says: 'Does not pay for "#### 9 apples", which has its number on the line.' },
  { text: '#### 9.5', answer: '9', says: 'Pays for 9.5 where 9 is right. Compare the whole number.' },
  { text: '', answer: '9', says: 'Pays for nothing at all.' },
];

/** Returns the score of the task's own reward for a text. */
export const taskPays = ({ text, answer }: { text: string; answer: string }): number =>
  gsm8kReward({ response: text, problem: { answer }, numToolCalls: 0, numToolErrors: 0 } as ScoredSample).score;

const reward = (body: string) => `export function reward({ text, answer }) {
${body}
}
`;

const REWARD: CodeExercise = {
  kind: 'code',
  id: '4.2',
  title: 'Write a reward without a hole',
  task:
    'The task pays 1 for the right number on the last line of the form "#### N", and 0 for anything else. Write that rule. The check runs it on ' +
    `${HOSTILE.length} tries that were made to cheat.`,
  name: 'reward',
  start: `// text: all that the model wrote. answer: the right number, as text.
export function reward({ text, answer }) {
  return text.includes(answer) ? 1 : 0;
}
`,
  answer: reward(
    "  const found = [...text.matchAll(/#### (-?[0-9.,]+)/g)].at(-1);\n  return found && found[1].replaceAll(',', '') === answer ? 1 : 0;",
  ),
  hint: 'Three steps: find all "#### N", take the last one, and compare the whole number without commas.',
  why: 'It pays exactly where the task pays.',
  calls: HOSTILE.map(({ text, answer }) => [{ text, answer }]),
  judge: (results) => {
    const i = HOSTILE.findIndex((one, k) => Number(results[k] ?? NaN) !== taskPays(one));
    if (i < 0) return undefined;
    const given = results[i];
    return [0, 1, true, false].includes(given as 0)
      ? HOSTILE[i].says
      : `For ${JSON.stringify(HOSTILE[i].text)} reward returned ${JSON.stringify(given)}. The task pays 1 or 0.`;
  },
  wrong: [
    { given: reward('  return text.includes(answer) ? 1 : 0;'), says: HOSTILE[1].says },
    {
      given: reward(
        "  const found = text.replaceAll(',', '').match(/-?[0-9]+/g)?.at(-1);\n  return found === answer ? 1 : 0;",
      ),
      says: HOSTILE[3].says,
    },
    {
      given: reward(
        "  const found = text.match(/#### (-?[0-9.,]+)/);\n  return found && found[1].replaceAll(',', '') === answer ? 1 : 0;",
      ),
      says: HOSTILE[4].says,
    },
  ],
};

const LOOK_FIRST: Record<string, { label: string; says: string }> = {
  tries: { label: 'the tries of the last step', says: '' },
  rate: {
    label: 'the learning rate',
    says: 'A rate that is too high breaks the reward as well. Here the reward rises to its limit: the run does what is paid.',
  },
  seed: {
    label: 'another seed',
    says: `Another seed has the same reward, and the same hole in it. Three seeds of each reward of figure 4.3 were trained: in ${NUMBERS['cheated']} of ${NUMBERS['runs']} runs the reward rose and fewer held-out problems were solved.`,
  },
  steps: {
    label: 'more steps',
    says: 'The share of right answers falls while the reward rises. More of the same makes more of the same.',
  },
};

const LOOK: ChoiceExercise = {
  kind: 'choice',
  id: '4.3',
  title: 'Reward up, right answers down',
  task: 'The reward of a run rises to its limit, and the share of right answers falls to 0. Choose what to look at first.',
  options: Object.entries(LOOK_FIRST).map(([id, { label }]) => ({ id, label })),
  answer: 'tries',
  hint: 'Which of the four shows what the model is paid for?',
  why: 'One glance at a try shows a guess in the place of a calculation, and the hole in the reward is plain.',
  judge: (chosen) => (chosen === 'tries' ? undefined : LOOK_FIRST[chosen]?.says),
  wrong: ['rate', 'seed', 'steps'].map((id) => ({ given: id, says: LOOK_FIRST[id].says })),
};

export const EXERCISES: readonly Exercise[] = [MASK, REWARD, LOOK];
