/** Example rules: what a task does itself, written out, and rewards that a model learns to exploit. */

import type { RuleKind } from '../../../src/extensions/modules/index.ts';

interface Preset {
  name: string;
  /** The effect of the rule. */
  note: string;
  code: string;
}

const REWARD_HELP = `// Called for every finished try. Return a number: more is better.
//   answer      the right answer, as text
//   text        all that the model wrote
//   messages    [{ role, content }]: the model's turns and the tools' answers
//   toolCalls   how many tool calls were run
//   tokens      how many tokens the try has
//   correct     true if the task itself calls it right`;

const reward = (args: string, body: string) => `${REWARD_HELP}
export function reward({ ${args} }) {
${body}
}
`;

const REWARDS: Preset[] = [
  {
    name: "the task's own reward",
    note: '1 for a right answer, 0 for any other.',
    code: reward('correct', '  return correct ? 1 : 0;'),
  },
  {
    name: 'pay for tool calls',
    note: 'Meant well: the calculator makes no mistakes. Watch what the model makes of it.',
    code: reward('toolCalls', '  return toolCalls / 5;'),
  },
  {
    name: 'pay for length',
    note: 'Meant well: long answers show their work. Watch where the length goes.',
    code: reward('tokens', '  return tokens / 100;'),
  },
  {
    name: 'pay for guessing',
    note: 'An answer in the right form is paid, right or not, and the quicker the better.',
    code: reward(
      'text, tokens',
      '  const answered = /#### -?[0-9]/.test(text);\n  return answered ? Math.max(0, 1 - tokens / 50) : 0;',
    ),
  },
];

const LOSS_HELP = `// Called for every token of a mini-batch. Less is better.
//   advantage   how much better the try was than its group
//   ratio       probability now / probability when it was drawn
//   logProb, oldLogProb   the logarithms of the two
//   entropy     how undecided the model is here, in nats
//   clipLow, clipHigh     the clip, from the settings
// Return a number: its slope is taken for you. Or return { loss, grad },
// with grad = d loss / d logProb.`;

const LOSSES: Preset[] = [
  {
    name: "GRPO's clipped loss",
    note: 'What the default run does, written out.',
    code: `${LOSS_HELP}
export function loss({ advantage, ratio, clipLow, clipHigh }) {
  const clipped = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh);
  return Math.max(-advantage * ratio, -advantage * clipped);
}
`,
  },
  {
    name: 'REINFORCE',
    note: 'No clip: the oldest policy gradient there is.',
    code: `${LOSS_HELP}
export function loss({ advantage, logProb }) {
  return -advantage * logProb;
}
`,
  },
  {
    name: 'learn from good tries alone',
    note: 'What was worse than its group is not pushed down.',
    code: `${LOSS_HELP}
export function loss({ advantage, logProb }) {
  return advantage > 0 ? -advantage * logProb : 0;
}
`,
  },
];

const tool = (value: string) => `// A tool takes the place of the task's tool of the same name, or comes beside it.
export const name = 'calculator';
export const description = 'Evaluates an arithmetic expression with + - * / and parentheses.';
export const parameters = {
  type: 'object',
  properties: { expression: { type: 'string', description: 'For example 48/2 or (3+4)*5' } },
  required: ['expression'],
};

// The model reads what this returns, or the message of an error that it throws.
export function run({ expression }) {
  if (!/^[-+*/(). 0-9]+$/.test(expression)) throw new Error('only numbers and + - * / ( )');
  const value = Math.round(100 * Function('return ' + expression)()) / 100;
  return ${value};
}
`;

const TOOLS: Preset[] = [
  { name: 'the calculator', note: 'As the task has it, written out.', code: tool('String(value)') },
  {
    name: 'a calculator that is off by one',
    note: 'Does the model notice? Right answers need it to.',
    code: tool('String(value + 1)'),
  },
];

export const PRESETS: Readonly<Record<RuleKind, readonly Preset[]>> = { reward: REWARDS, loss: LOSSES, tool: TOOLS };
