/** Example rules: a task's own rules as code, and rewards that a model learns to exploit. */

import type { RuleKind } from '../../../src/extensions/modules/index.ts';

export interface Preset {
  name: string;
  /** One sentence about the effect of the rule. */
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
    note: '1 if correct, otherwise 0.',
    code: reward('correct', '  return correct ? 1 : 0;'),
  },
  {
    name: 'reward tool calls',
    note: 'Pays for each call: the calculator makes no mistakes.',
    code: reward('toolCalls', '  return toolCalls / 5;'),
  },
  {
    name: 'reward length',
    note: 'Pays for tokens: long answers show their work.',
    code: reward('tokens', '  return tokens / 100;'),
  },
  {
    name: 'reward guessing',
    note: 'Pays for any number in the right format, and more for a short answer.',
    code: reward(
      'text, tokens',
      '  const answered = /#### -?[0-9]/.test(text);\n  return answered ? Math.max(0, 1 - tokens / 50) : 0;',
    ),
  },
];

/** Rewards that a model learns to exploit. */
export const CHEATS: readonly Preset[] = REWARDS.slice(1);

const LOSS_HELP = `// Called for every token of a mini-batch. Less is better.
//   advantage   how much better the try was than its group
//   ratio       probability now / probability when it was drawn
//   logProb, oldLogProb   the logarithms of the two
//   entropy     how undecided the model is here, in nats
//   clipLow, clipHigh     the clip, from the settings
// Return a number: its gradient is computed numerically. Or return
// { loss, grad, entropyGrad }, with grad = d loss / d logProb, and
// entropyGrad = d loss / d entropy (default: 0).`;

const LOSSES: Preset[] = [
  {
    name: "GRPO's clipped loss",
    note: 'The loss of the default run, as code.',
    code: `${LOSS_HELP}
export function loss({ advantage, ratio, clipLow, clipHigh }) {
  const clipped = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh);
  return Math.max(-advantage * ratio, -advantage * clipped);
}
`,
  },
  {
    name: 'REINFORCE',
    note: 'No clip: the original policy gradient.',
    code: `${LOSS_HELP}
export function loss({ advantage, logProb }) {
  return -advantage * logProb;
}
`,
  },
  {
    name: 'learn only from good tries',
    note: 'Tries below the group mean are ignored.',
    code: `${LOSS_HELP}
export function loss({ advantage, logProb }) {
  return advantage > 0 ? -advantage * logProb : 0;
}
`,
  },
];

const tool = (value: string) => `// Replaces the task's tool of the same name, or is added to its tools.
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
  { name: 'the calculator', note: "The task's own tool, as code.", code: tool('String(value)') },
  {
    name: 'a calculator that is off by one',
    note: 'Will the model notice? Correct answers depend on it.',
    code: tool('String(value + 1)'),
  },
];

export const PRESETS: Readonly<Record<RuleKind, readonly Preset[]>> = { reward: REWARDS, loss: LOSSES, tool: TOOLS };
