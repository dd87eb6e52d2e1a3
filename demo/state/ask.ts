/** The visitor's questions and the model's answers, as signals. */

import { computed, signal, type Signal } from '@preact/signals';
import type { Message, Problem, Task } from '../../src/tasks/task.ts';
import type { Side } from '../engine/answering.ts';
import { session, weightsStep } from './page.ts';

/** An answer, updated while it is generated. */
export interface Answer {
  side: Side;
  /** Step of the weights that generate the answer. */
  step: number;
  /** Messages before the question. */
  context: readonly Message[];
  /** Completed turns and tool outputs. */
  messages: Signal<readonly Message[]>;
  /** Text of the current turn. */
  drawing: Signal<string>;
  /** Reason why the answer ended; undefined = still running. */
  ended: Signal<string | undefined>;
}

/** A question with its answers. */
export interface Exchange {
  id: number;
  question: string;
  problem: Problem;
  answers: readonly Answer[];
}

/** All exchanges, newest last. */
export const exchanges = signal<readonly Exchange[]>([]);
/** True while a question is being answered. */
export const asking = signal(false);
/** Reason why the question has to wait; '' = it does not wait. */
export const waiting = signal('');
/** Reason why the last question was not answered; '' = it was answered. */
export const refusal = signal('');
/** Finished answers as sentences, for a screen reader. */
export const spoken = signal('');
/** Sides that answer. */
export const sides = signal<readonly Side[]>(['before', 'now']);
/** True if answers are decoded greedily. */
export const greedy = signal(false);
/** True if the session's weights differ from the start weights. A session that was opened ahead of a run has the start weights. */
export const isTrained = computed(() => session.value !== undefined && weightsStep.value !== 0);
/** The task that is asked about; undefined = not open yet. */
export const task = signal<Task | undefined>(undefined);
/** True if the task's problems are states of an environment, which are played instead of asked. */
export const isGame = computed(() => (task.value?.environments?.length ?? 0) > 0);

/** Returns the name of the weights that gave an answer. */
export const nameOf = ({ side, step }: Pick<Answer, 'side' | 'step'>): string =>
  side === 'before' ? 'Before training' : `After step ${step}`;

/** Returns the final answer in a text, in the format of the shipped tasks; undefined if it has none. */
export function finalAnswer(text: string): string | undefined {
  return [...text.matchAll(/#### (.+)|<answer>([^<]*)<\/answer>/g)].map(([, line, tag]) => line ?? tag).at(-1);
}

/** Returns the answer as a sentence for a screen reader. */
export function inWords(answer: Answer): string {
  const last = answer.messages.value.at(-1)?.content ?? '';
  return `${nameOf(answer)}: ${finalAnswer(last) ?? (last.slice(-200) || 'no answer')}.`;
}
