// A task: problems, tools and a reward. See docs/guides/tasks.md of webgrpo for all fields.

/** System message of every problem; '' = none. Neither the shipped model nor the model of sft.yaml needs one. */
const SYSTEM = '';

/** @param {string} content @returns {import('webgrpo').Message[]} */
const prompt = (content) => [
  ...(SYSTEM === '' ? [] : [{ role: /** @type {const} */ ('system'), content: SYSTEM }]),
  { role: 'user', content },
];

/** @param {number} a @param {number} b */
const problem = (a, b) => ({
  id: `${a}+${b}`,
  messages: prompt(`Tom has ${a} books and buys ${b} more. How many books in all?`),
  answer: `${a + b}`,
});

const sums = Array.from({ length: 1600 }, (_, i) => ({ a: 3 + (i % 40), b: 3 + Math.floor(i / 40) }));
// Every fifth sum is held out and never trained on.
const training = sums.filter(({ a, b }) => (a + b) % 5 !== 0).map(({ a, b }) => problem(a, b));
const heldOut = sums.filter(({ a, b }) => (a + b) % 5 === 0).map(({ a, b }) => problem(a, b));

/**
 * A tool that the model can call. The model reads the text that `execute` returns, or the message of the error that `execute` throws.
 * @type {import('webgrpo').Tool}
 */
export const calculator = {
  name: 'calculator',
  description: 'Computes one operation on two whole numbers, such as 12+30.',
  parameters: { type: 'object', properties: { expression: { type: 'string' } }, required: ['expression'] },
  execute({ expression }) {
    const [, a, sign, b] = /^\s*(\d+)\s*([-+*])\s*(\d+)\s*$/.exec(String(expression)) ?? [];
    if (sign === undefined) throw new Error('write one operation, such as 12+30');
    return String({ '+': +a + +b, '-': +a - +b, '*': +a * +b }[sign]);
  },
};

/** Returns a tool call as a model writes it. @param {import('webgrpo').Tool} tool @param {object} args */
const call = ({ name }, args) => `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>`;

/** @type {import('webgrpo').Task} */
export default {
  name: 'my-task',
  train: (index) => training[(index * 7919) % training.length],
  heldOut: (count) => heldOut.slice(0, count),
  tools: [calculator],
  reward({ problem, response }) {
    const acc = response.trim().endsWith(`#### ${problem.answer}`) ? 1 : 0;
    return { score: acc, acc };
  },
  // Returns the messages of a right solution, for sft.yaml to imitate. With probability `errorRate` the solution has a mistake: a guess
  // without a tool call.
  demonstrate({ id, answer }, rng, errorRate) {
    if (rng.uniform() < errorRate) return [{ role: 'assistant', content: `#### ${rng.int(6, 84)}` }];
    return [
      { role: 'assistant', content: call(calculator, { expression: id }) },
      { role: 'tool', content: answer },
      { role: 'assistant', content: `#### ${answer}` },
    ];
  },
};
