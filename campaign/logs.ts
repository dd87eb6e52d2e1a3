/** Line-based inputs: the log files of a run, problem files, token texts, tool calls, arithmetic expressions. */

import fc from 'fast-check';
import { TOOL_PARSERS } from '../src/rollout/tools/parser.ts';
import { changed, mixed, odd, repeated } from './inputs/draw.ts';
import type { Input } from './inputs/input.ts';
import { judgeAll } from './inputs/judged.ts';
import type { CampaignPart } from './part.ts';

const jsonl = (lines: readonly object[]) => lines.map((line) => `${JSON.stringify(line)}\n`).join('');

const RUN: Record<string, string> = {
  'metrics.jsonl': jsonl(
    [0, 1, 2, 3].map((step) => ({
      'training/global_step': step,
      'critic/score/mean': step / 4,
      'timing_s/step': 1,
      'actor/kl_loss': null,
    })),
  ),
  'rollouts/step-1.jsonl': jsonl([
    {
      step: 1,
      group: 0,
      problem: 'p',
      answer: '1',
      messages: [{ role: 'user', content: 'q' }],
      score: 1,
      acc: 1,
      advantage: null,
      stopReason: 'completed',
    },
  ]),
  'rollouts/val-step-0.jsonl': jsonl([
    { step: 0, group: 0, problem: 'p', answer: '1', messages: [], score: null, acc: 0 },
  ]),
  'profile/step-1.jsonl': jsonl([
    {
      step: 1,
      phases: [
        ['generate', 0, 812.4],
        ['update', 815.1, 1200.2],
      ],
    },
    ...Array.from({ length: 6 }, (_, i) => ({
      ...{ id: `0.${i}`, problem: 'p', stop: 'completed', turns: 2, tokens: 41, toolCalls: 1, score: 1 },
      events: [
        ['decode', 0, 3.1, 420.7],
        ['tool', 1, 420.9, 421.3],
      ],
    })),
  ]),
  'config.yaml': 'data: {maxResponseLength: 64}\nrollout: {maxNumSeqs: 4, multiTurn: {toolTimeoutS: 1}}\n',
  'best.json': '{"step": 1, "metric": "m", "value": 1, "checkpoint": "checkpoints/step-1"}',
};
const PROBLEMS = jsonl([
  { question: 'Ann has 3 and buys 4. How many?', answer: '3+4 = <<3+4=7>>7.\n#### 7' },
  { question: 'What is half of 1,000?', answer: '<<1000/2=500>>500\n#### 500' },
]);
const TAGS = [
  ...[
    '<tool_call>',
    '</tool_call>',
    '<function=calculator>',
    '</function>',
    '<parameter=expression>',
    '</parameter>',
    '<parameter=',
  ],
  ...[
    '<arg_key>',
    '</arg_key>',
    '<arg_value>',
    '</arg_value>',
    '<|tool_call_begin|>',
    '<|tool_call_end|>',
    'functions.calculator:0',
  ],
  ...[
    '<|tool_call_argument_begin|>',
    '<|channel|>commentary to=functions.calculator ',
    '<|message|>',
    '<|call|>',
    '<|start|>',
  ],
  ...[
    '<start_function_call>',
    '<end_function_call>',
    'call:calculator{',
    '<escape>',
    '<|tool_call>',
    '<tool_call|>',
    '<|"|>',
  ],
  ...[
    '{"name": "calculator", "arguments": {"expression": "1+2"}}',
    '{"name": "calculator", "parameters": ',
    '{"expression": ',
    '}',
    '{',
  ],
  ...['[', ']', ',', ';', ':', '"', 'calculator', 'expression', '1+2', '\n'],
];
const SIGNS = ['1', '23', '.5', '+', '-', '*', '/', '(', ')', ' ', '0', '1e5', '9999999999', 'x', '%', ','];

function cases(count: number, seed: number): Record<string, Input[]> {
  const draw = <T>(arbitrary: fc.Arbitrary<T>, share: number) =>
    fc.sample(arbitrary, { seed, numRuns: Math.ceil(count * share) });
  const files = fc
    .constantFrom(...Object.keys(RUN))
    .chain((name) =>
      fc
        .oneof({ weight: 6, arbitrary: changed([RUN[name]]) }, odd, fc.json())
        .map((text) => ({ ...RUN, [name]: text })),
    );
  const format = fc.constantFrom(...Object.keys(TOOL_PARSERS));
  const calls = fc.tuple(format, fc.oneof({ weight: 3, arbitrary: mixed(TAGS) }, repeated(TAGS)));
  const tokens = fc.oneof(
    changed(['[[1, 5, 2], [96], [3, 4]]']),
    fc.json(),
    odd,
    fc.array(fc.array(fc.integer({ min: -1, max: 99 }))).map((ids) => JSON.stringify(ids)),
  );
  return {
    'run folders': draw(files, 0.25).map((drawn) => ({ kind: 'folder', files: drawn })),
    'JSONL of problems': draw(fc.oneof({ weight: 3, arbitrary: changed([PROBLEMS]) }, fc.json(), odd), 0.25).map(
      (text) => ({ kind: 'jsonl', text }),
    ),
    'tokens to score': draw(tokens, 0.2).map((text) => ({ kind: 'tokens', text })),
    'tool calls': draw(calls, 0.2).map(([name, text]) => ({ kind: 'calls', format: name, text })),
    expressions: draw(mixed(SIGNS, 60), 0.1).map((text) => ({ kind: 'expression', text })),
  };
}

export const logs: CampaignPart = {
  name: 'logs',
  run: ({ seed, full, say }) => judgeAll(cases(full ? 2000 : 200, seed), say),
};
