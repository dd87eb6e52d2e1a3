/** GSM8K's own files: one JSON object a line, `{ question, answer }`, calculations marked as `<<48/2=24>>`. */

import { InputError } from '../../errors.ts';
import { hash, keyedRng, permutation } from '../random.ts';
import { type PromptOptions, prompted } from './prompt.ts';
import { gsm8kReward, NO_SHAPING } from './reward.ts';
import type { Shaping } from './reward.ts';
import type { Gsm8kProblem } from './task.ts';
import type { Task } from '../task.ts';
import { calculate, calculator } from '../tools/calculator.ts';

/**
 * Problems of a JSONL text. A calculation that our calculator cannot read (a few hold words or "%") is left out of
 * `program`. Throws InputError that names the line for anything else that does not fit.
 */
export function parseGsm8kJsonl(text: string, file: string): Gsm8kProblem[] {
  const lines = text.replace(/^\uFEFF/, '').split('\n');
  const problems = lines.flatMap((line, i) => (line.trim() === '' ? [] : [parseLine(line, `${file}, line ${i + 1}`)]));
  if (problems.length === 0) throw new InputError(`${file} holds no problems; expected one JSON object a line.`);
  return problems.map((problem, i) => ({ ...problem, id: `${file}-${i}` }));
}

/**
 * The task over JSONL texts: training problems in a fresh order each epoch, the first `count` test problems (of each
 * `dataSource`, where they have one).
 */
export function gsm8kJsonlTask(
  train: Gsm8kProblem[],
  test: Gsm8kProblem[],
  options: { shaping?: Partial<Shaping>; prompt?: Partial<PromptOptions> } = {},
): Task {
  const { prompt = {} } = options;
  const shaping = { ...NO_SHAPING, ...options.shaping };
  let epoch = { key: '', order: [] as number[] };
  const orderOf = (seed: number, number: number) => {
    const key = `${seed}/${number}`;
    if (epoch.key !== key)
      epoch = { key, order: permutation(train.length, keyedRng('gsm8k-epoch', hash(seed, number))) };
    return epoch.order;
  };
  return {
    name: 'gsm8k',
    trainSize: train.length,
    train: (index, seed) =>
      prompted(train[orderOf(seed, Math.floor(index / train.length))[index % train.length]], prompt),
    heldOut: (count) => firstOfEachSource(test, count).map((problem) => prompted(problem, prompt)),
    tools: [calculator],
    reward: (sample) => gsm8kReward(sample, shaping, prompt.parser),
  };
}

function parseLine(line: string, where: string): Gsm8kProblem {
  const { question, answer } = parseObject(line, where);
  if (typeof question !== 'string' || typeof answer !== 'string') {
    throw new InputError(`${where}: expected text under "question" and "answer", found ${line.slice(0, 80)}.`);
  }
  const final = /####\s*\$?(-?[0-9.,]+)\s*$/.exec(answer);
  if (!final) throw new InputError(`${where}: the answer does not end in "#### N"; it ends in ...${answer.slice(-40)}`);
  return {
    id: where,
    messages: [{ role: 'user', content: question.trim() }],
    answer: final[1].replaceAll(',', ''),
    program: annotations(answer),
  };
}

function parseObject(line: string, where: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new InputError(`${where}: not valid JSON (${(error as Error).message}).`, { cause: error });
  }
  if (typeof value === 'object' && value !== null) return value as Record<string, unknown>;
  throw new InputError(`${where}: expected a JSON object, found ${line.slice(0, 80)}.`);
}

/** Expressions left of "=" in `<<...=...>>`, without signs of currency or thousands. */
function annotations(answer: string): string[] {
  return [...answer.matchAll(/<<([^=<>]+)=[^<>]*>>/g)]
    .map(([, expression]) => expression.replace(/[$,\s]/g, ''))
    .filter((expression) => !calculate(expression).startsWith('Error'));
}

function firstOfEachSource(problems: readonly Gsm8kProblem[], count: number): Gsm8kProblem[] {
  const taken = new Map<string | undefined, number>();
  return problems.filter(({ dataSource }) => {
    const before = taken.get(dataSource) ?? 0;
    taken.set(dataSource, before + 1);
    return before < count;
  });
}
