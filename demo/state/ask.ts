/** The visitor's own questions and their answers, as signals. */

import { computed, signal, type Signal } from '@preact/signals';
import type { Message, Problem, Task } from '../../src/tasks/task.ts';
import type { Side } from '../engine/answering.ts';
import { session, weightsStep } from './page.ts';

/** An answer as it grows. */
export interface Answer {
  side: Side;
  /** Step that the weights are of. */
  step: number;
  /** Before the question. */
  context: readonly Message[];
  /** Turns and outputs of tools that are whole. */
  messages: Signal<readonly Message[]>;
  /** Text of the current turn. */
  drawing: Signal<string>;
  /** How it ended; undefined = it is still running. */
  ended: Signal<string | undefined>;
}

/** A question with its answers. */
export interface Exchange {
  id: number;
  question: string;
  problem: Problem;
  answers: readonly Answer[];
}

/** Newest last. */
export const exchanges = signal<readonly Exchange[]>([]);
/** A question is being answered. */
export const asking = signal(false);
/** What asking waits for; '' = nothing. */
export const waiting = signal('');
/** Why the last question was not answered; '' = it was. */
export const refusal = signal('');
/** Finished answers in words, for a screen reader. */
export const spoken = signal('');
/** Whose answers are drawn. */
export const sides = signal<readonly Side[]>(['before', 'now']);
/** True if answers are drawn greedily. */
export const greedy = signal(false);
/** The session's weights are others than the start's; one that was opened ahead of a run has those. */
export const isTrained = computed(() => session.value !== undefined && weightsStep.value !== 0);
/** The task that is asked about; undefined = it is not open yet. */
export const task = signal<Task | undefined>(undefined);
/** Its problems are states of an environment, not texts: they are played. */
export const isGame = computed(() => (task.value?.environments?.length ?? 0) > 0);

/** Name of whose answer it is. */
export const nameOf = ({ side, step }: Pick<Answer, 'side' | 'step'>): string =>
  side === 'before' ? 'Before training' : `Now (step ${step})`;

/** The answer that a text ends with, as the shipped tasks write it; undefined = it has none. */
export function finalAnswer(text: string): string | undefined {
  return [...text.matchAll(/#### (.+)|<answer>([^<]*)<\/answer>/g)].map(([, line, tag]) => line ?? tag).at(-1);
}

/** The answer as a screen reader says it. */
export function inWords(answer: Answer): string {
  const last = answer.messages.value.at(-1)?.content ?? '';
  return `${nameOf(answer)}: ${finalAnswer(last) ?? (last.slice(-200) || 'no answer')}.`;
}
