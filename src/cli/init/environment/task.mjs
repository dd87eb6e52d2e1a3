// An environment holds the state that the tools and turns of one sample share. See docs/guides/environments.md of webgrpo.

/** Maximum number of answers in one sample. */
const TRIES = 2;

/** System message of every problem; '' = none. Neither the shipped model nor the model of sft.yaml needs one. */
const SYSTEM = '';

/** @param {string} id */
const question = (id) => {
  const [a, b] = id.split('+');
  return `Tom has ${a} books and buys ${b} more. How many books in all?`;
};

/**
 * An environment with the fields that `defineEnvironment` of webgrpo/tasks would return. That function is not used, so that the test of
 * this file runs without packages.
 * @type {import('webgrpo/tasks').Environment}
 */
export const bookshop = {
  name: 'bookshop',
  // Returns the state of one sample, and the text that the model reads first.
  reset({ id, answer }) {
    return { state: { answer, tries: 0, sums: 0 }, observation: question(id) };
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
  // Called after each turn without a tool call; its text is an answer. A right answer ends the sample, and earns less than 1 if it is not
  // the first answer.
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
  messages: [
    ...(SYSTEM === '' ? [] : [{ role: /** @type {const} */ ('system'), content: SYSTEM }]),
    { role: /** @type {const} */ ('user'), content: '' }, // empty, because the first observation is the prompt
  ],
  answer: `${a + b}`,
});

const sums = Array.from({ length: 1600 }, (_, i) => ({ a: 3 + (i % 40), b: 3 + Math.floor(i / 40) }));
// Every fifth sum is held out and never trained on.
const training = sums.filter(({ a, b }) => (a + b) % 5 !== 0).map(({ a, b }) => problem(a, b));
const heldOut = sums.filter(({ a, b }) => (a + b) % 5 === 0).map(({ a, b }) => problem(a, b));

/** Returns a tool call as a model writes it. @param {import('webgrpo').Tool} tool @param {object} args */
const call = ({ name }, args) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;

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
  // Returns the messages of a right solution after the first observation, for sft.yaml to imitate. With probability `errorRate` the
  // solution has a mistake.
  demonstrate({ id, answer }, rng, errorRate) {
    const first = { role: /** @type {const} */ ('user'), content: question(id) };
    if (rng.uniform() < errorRate) return [first, { role: 'assistant', content: `#### ${rng.int(6, 84)}` }];
    return [
      first,
      { role: 'assistant', content: call(bookshop.tools[0], { expression: id }) },
      { role: 'tool', content: answer },
      { role: 'assistant', content: `#### ${answer}` },
    ];
  },
};
