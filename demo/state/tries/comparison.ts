/** Two answers to the same held-out problem: the start model's, and the newest evaluated model's. */

import { computed, signal } from '@preact/signals';
import type { Sample } from '../../../src/grpo/update/batch.ts';
import { type LoggedRollout, loggedRollouts } from '../../../src/runs/rollouts.ts';
import { CALL, readCall } from './calls.ts';

export interface ComparedAnswer {
  /** Step of the weights that answered; 0 = before training. */
  step: number;
  text: string;
  right: boolean;
}

export interface Comparison {
  /** Number of the problem among the held-out ones, from 1. */
  number: number;
  problem: string;
  before: ComparedAnswer;
  after: ComparedAnswer;
}

type Answers = readonly LoggedRollout[];

/** Answers of the last evaluation before training, and of the newest one after it. */
const evaluated = signal<{ before: Answers; after: Answers }>({ before: [], after: [] });

/** The comparison of the shown run; undefined if the page has not seen both evaluations. */
export const comparison = computed(() => comparisonOf(evaluated.value.before, evaluated.value.after));

/** Stores the answers of an evaluation for the comparison. */
export function keepAnswers(samples: readonly Sample[], step: number): void {
  const answers = loggedRollouts(samples, step, samples.length);
  evaluated.value = { ...evaluated.value, [step === 0 ? 'before' : 'after']: answers };
}

/** Forgets all answers. */
export function forgetAnswers(): void {
  evaluated.value = { before: [], after: [] };
}

/** True if the try counts as right. */
export const isRight = ({ acc }: LoggedRollout): boolean => acc !== null && acc >= 1;

/** True if the task's reward says whether the try is right. */
export const isJudged = ({ acc }: LoggedRollout): boolean => acc !== null;

/**
 * Returns the first problem that one model solved and the other did not, otherwise the first problem. Answers that are not judged are
 * skipped.
 */
export function comparisonOf(before: Answers, after: Answers): Comparison | undefined {
  const pairs = firstOfEach(before.filter(isJudged)).flatMap((one) => {
    const other = after.find((answer) => answer.group === one.group && isJudged(answer));
    return other?.problem === one.problem ? [{ one, other }] : [];
  });
  const pair = pairs.find(({ one, other }) => isRight(one) !== isRight(other)) ?? pairs.at(0);
  if (!pair) return undefined;
  const { group, messages, promptMessages } = pair.one;
  const asked = messages.slice(0, promptMessages).filter(({ role }) => role === 'user');
  return { number: group + 1, problem: textOf(asked), before: answerOf(pair.one), after: answerOf(pair.other) };
}

/** Returns the first answer to each problem. */
const firstOfEach = (answers: Answers): LoggedRollout[] =>
  answers.filter(({ group }, i) => answers.findIndex((one) => one.group === group) === i);

function answerOf(one: LoggedRollout): ComparedAnswer {
  const { step, messages, promptMessages } = one;
  return { step, text: textOf(messages.slice(promptMessages)), right: isRight(one) };
}

/** Returns messages as one line of text; a tool call is written as `calculator(48/2) = 24`. */
const textOf = (part: LoggedRollout['messages']): string =>
  part
    .map(({ role, content }) => (role === 'tool' ? `= ${content}` : withCalls(content)).trim())
    .join(' ')
    .replace(/\s+/g, ' ');

const withCalls = (text: string): string =>
  text.replaceAll(CALL, (call) => {
    const read = readCall(call);
    return read ? `${read.shown} ` : call;
  });
