// An environment is a state that a sample's tools and turns share: docs/guides/environments.md of webgrpo says what else it may have.

/** Answers that a sample may give. */
const TRIES = 2;

/**
 * What `defineEnvironment` of webgrpo/tasks makes, written out, so that the test needs nothing installed.
 * @type {import('webgrpo/tasks').Environment}
 */
export const bookshop = {
  name: 'bookshop',
  // The state of one sample, and the text that the model reads first.
  reset({ id, answer }) {
    const [a, b] = id.split('+');
    return {
      state: { answer, tries: 0, sums: 0 },
      observation: `Tom has ${a} books and buys ${b} more. How many books in all?`,
    };
  },
  tools: [
    {
      name: 'calculator',
      description: 'Computes one operation on two whole numbers, such as 12+30.',
      parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
      execute({ expression }, { state }) {
        const [, a, sign, b] = /^\s*(\d+)\s*([-+*])\s*(\d+)\s*$/.exec(String(expression)) ?? [];
        if (sign === undefined) throw new Error('write one operation, such as 12+30');
        /** @type {any} */ (state).sums++;
        return String({ '+': +a + +b, '-': +a - +b, '*': +a * +b }[sign]);
      },
    },
  ],
  // A turn that calls no tool is an answer: the first one that is right ends the sample, and is worth less the later it comes.
  step(text, context) {
    const state = /** @type {any} */ (context.state);
    state.tries++;
    if (text.trim().endsWith(`#### ${state.answer}`)) return { text: 'right', reward: 1 / state.tries, done: true };
    return { text: 'wrong', done: state.tries === TRIES };
  },
  maxResponseLength: 200,
};

/** @param {number} a @param {number} b */
const problem = (a, b) => ({
  id: `${a}+${b}`,
  messages: [{ role: /** @type {const} */ ('user'), content: '' }], // the first observation is all that is said
  answer: `${a + b}`,
});

const sums = Array.from({ length: 1600 }, (_, i) => ({ a: 3 + (i % 40), b: 3 + Math.floor(i / 40) }));
// Every fifth sum is held out: none of them is ever trained on.
const training = sums.filter(({ a, b }) => (a + b) % 5 !== 0).map(({ a, b }) => problem(a, b));
const heldOut = sums.filter(({ a, b }) => (a + b) % 5 === 0).map(({ a, b }) => problem(a, b));

/** @type {import('webgrpo').Task} */
export default {
  name: 'my-task',
  train: (index) => training[(index * 7919) % training.length],
  heldOut: (count) => heldOut.slice(0, count),
  environments: [bookshop],
  reward({ turnRewards = [] }) {
    const score = turnRewards.reduce((sum, reward) => sum + reward, 0);
    return { score, acc: score === 1 ? 1 : 0 };
  },
};
