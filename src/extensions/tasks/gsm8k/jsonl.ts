/** Reads GSM8K's own files: one JSON object `{ question, answer }` per line. Calculations in the answer are marked as `<<48/2=24>>`. */

import { InputError } from '../../../errors.ts';
import { drawnFrom, type JsonlRow, readRows } from '../jsonl/file.ts';
import { placed } from '../../../tasks/problem.ts';
import { type PromptOptions, prompted } from './prompt.ts';
import { gsm8kReward, NO_SHAPING } from '../../../tasks/gsm8k/reward.ts';
import type { Shaping } from '../../../tasks/gsm8k/reward.ts';
import type { Gsm8kProblem } from '../../../tasks/gsm8k/task.ts';
import type { SyncTask } from '../../../tasks/task.ts';
import { calculator, evaluate } from '../../../tasks/tools/calculator.ts';

/**
 * Parses the problems of a JSONL text. `program` omits calculations that the calculator tool cannot read, because a few contain words or
 * "%". Throws InputError that names the line for any other invalid content.
 */
export function parseGsm8kJsonl(text: string, file: string): Gsm8kProblem[] {
  return readRows({ file, text }).map((row, i) => placed({ ...problemOf(row), id: `${file}-${i}` }, row.where));
}

/**
 * Creates the task from JSONL texts. Training problems have a new order each epoch. Held-out problems are the first `count` test problems
 * (of each `dataSource`, if they have one).
 */
export function gsm8kJsonlTask(
  train: Gsm8kProblem[],
  test: Gsm8kProblem[],
  options: { shaping?: Partial<Shaping>; prompt?: Partial<PromptOptions> } = {},
): SyncTask {
  const { prompt = {} } = options;
  const shaping = { ...NO_SHAPING, ...options.shaping };
  const drawn = drawnFrom('gsm8k', train, test);
  return {
    name: 'gsm8k',
    trainSize: drawn.trainSize,
    train: (index, seed) => prompted(drawn.train(index, seed), prompt),
    heldOut: (count) => drawn.heldOut(count).map((problem) => prompted(problem, prompt)),
    ask: (text) => prompted({ id: 'ask', messages: [{ role: 'user', content: text }], answer: '' }, prompt).messages,
    tools: [calculator],
    reward: (sample) => gsm8kReward(sample, shaping, prompt.parser),
  };
}

function problemOf({ fields, line, where }: JsonlRow): Gsm8kProblem {
  const { question, answer } = fields;
  if (typeof question !== 'string' || question.trim() === '' || typeof answer !== 'string') {
    throw new InputError(
      `${where}: expected text under "question" and "answer", found ${line.slice(0, 80)}. Write both as texts.`,
    );
  }
  const final = /####\s*\$?(-?[0-9.,]+)\s*$/.exec(answer)?.[1].replaceAll(',', '').replace(/\.+$/, '');
  if (final === undefined || !/\d/.test(final) || !Number.isFinite(Number(final)))
    throw new InputError(
      `${where}: the answer does not end in "#### N"; it ends in ${JSON.stringify(answer.slice(-40))}. Write it so.`,
    );
  return {
    id: where,
    messages: [{ role: 'user', content: question.trim() }],
    answer: final,
    program: annotations(answer),
  };
}

/** Returns the expression before "=" of each `<<...=...>>`, without currency signs and thousands separators. */
function annotations(answer: string): string[] {
  return [...answer.matchAll(/<<([^=<>]+)=[^<>]*>>/g)]
    .map(([, expression]) => expression.replace(/[$,\s]/g, ''))
    .filter((expression) => Number.isFinite(evaluate(expression)));
}
