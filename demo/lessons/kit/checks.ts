/** Exercises of a lesson, as data, and the check of each kind. The tests solve the exercises from the same data. */

import { describe } from '../../../src/errors.ts';
import type { Rule as OpenRule, RuleTokens } from '../../../src/extensions/modules/index.ts';
import { LoopError, type LoopFacts, type LoopStep } from './runLoop.ts';

/** Fields that all kinds of exercises have. `judge` returns the sentence for a mistake, or undefined for a right answer. */
interface Common<Given> {
  id: string;
  title: string;
  task: string;
  /** Hint that is shown after the first mistake. */
  hint: string;
  /** A right answer, which is shown after the second mistake. */
  answer: Given;
  /** Explanation why the answer is right. */
  why: string;
  /** Three usual wrong answers, and the sentence that is shown for each. */
  wrong: { given: Given; says: string }[];
}

/** An exercise in which the reader writes a function, which runs in a sandbox. */
export interface CodeExercise extends Common<string> {
  kind: 'code';
  /** Name of the function. */
  name: string;
  /** Code from which the reader starts. */
  start: string;
  /** Arguments of each call. */
  calls: unknown[][];
  /** Time limit in milliseconds for all calls together. Default: the sandbox's limit, 2,000. */
  timeMs?: number;
  /** Tokens with which a custom loss is called. The only result is then a `RuleLosses`. Undefined for other functions. */
  tokens?: RuleTokens;
  judge(results: readonly unknown[]): string | undefined;
}

/** An exercise with boxes to tick. An answer is the set of ticked ids. */
export interface TickExercise extends Common<string[]> {
  kind: 'ticks';
  options: { id: string; label: string }[];
  judge(ticked: readonly string[]): string | undefined;
}

/** Numbers to write. */
export interface NumbersExercise extends Common<number[]> {
  kind: 'numbers';
  fields: string[];
  judge(numbers: readonly number[]): string | undefined;
}

/** An exercise with sentences, one of which is right. An answer is the id of the chosen one. */
export interface ChoiceExercise extends Common<string> {
  kind: 'choice';
  options: { id: string; label: string }[];
  judge(chosen: string): string | undefined;
}

/** An exercise in which each item gets one of several names. An answer is the list of the chosen ids, in the order of the items. */
export interface MatchExercise extends Common<string[]> {
  kind: 'match';
  items: string[];
  options: { id: string; label: string }[];
  judge(chosen: readonly string[]): string | undefined;
}

/** An exercise in which the reader completes a training loop. The loop runs in a worker and needs a GPU. */
export interface LoopExercise extends Common<string> {
  kind: 'loop';
  start: string;
  /** Folder of the shipped model that the loop trains. */
  checkpoint: string;
  steps: number;
  judge(facts: LoopFacts): string | undefined;
}

/** An exercise in which the reader completes a program for the GPU. */
export interface KernelExercise extends Common<string> {
  kind: 'kernel';
  start: string;
  /** Runs the program on this GPU. Rejects with LoopError for an error in its text. */
  judge(code: string): Promise<string | undefined>;
}

/** An exercise that is checked without running code. */
export type PlainExercise = TickExercise | NumbersExercise | ChoiceExercise | MatchExercise;

export type Exercise = CodeExercise | LoopExercise | KernelExercise | PlainExercise;

/** Result of a check. */
export interface Checked {
  ok: boolean;
  says: string;
  /** Line of the error in the reader's code, from 1. */
  line?: number | undefined;
  column?: number | undefined;
}

const RIGHT = 'Right.';

const checked = (mistake: string | undefined, why: string): Checked =>
  mistake === undefined ? { ok: true, says: `${RIGHT} ${why}` } : { ok: false, says: mistake };

/** Checks an answer to an exercise without code. */
export function check(exercise: PlainExercise, given: PlainExercise['answer']): Checked {
  const judge = exercise.judge as (given: PlainExercise['answer']) => string | undefined;
  return checked(judge(given), exercise.why);
}

/** Checks what the calls of a function returned. */
export const checkResults = (exercise: CodeExercise, results: readonly unknown[]): Checked =>
  checked(exercise.judge(results), exercise.why);

/** Checks an exercise by the counts of what a loop did. */
export const checkLoopFacts = (exercise: LoopExercise, facts: LoopFacts): Checked =>
  checked(exercise.judge(facts), exercise.why);

/** Runs the reader's loop for the steps of the exercise, and checks what the loop did. Returns undefined if the loop was stopped. */
export async function checkLoop(
  exercise: LoopExercise,
  text: string,
  { onStep, signal }: { onStep: (step: LoopStep) => void; signal: AbortSignal },
): Promise<Checked | undefined> {
  const { runInWorker } = await import('./loop.ts');
  const { checkpoint, steps } = exercise;
  try {
    const facts = await runInWorker({ text, checkpoint, options: { steps }, mostUpdates: steps, onStep, signal });
    return facts && checkLoopFacts(exercise, facts);
  } catch (error) {
    return failed(error);
  }
}

const failed = (error: unknown): Checked => ({
  ok: false,
  says: describe(error),
  line: error instanceof LoopError ? error.line : undefined,
});

/** Runs the reader's program on the GPU, and checks what it did. */
export const checkKernel = (exercise: KernelExercise, code: string): Promise<Checked> =>
  exercise.judge(code).then((mistake) => checked(mistake, exercise.why), failed);

/** Runs the reader's function in a sandbox, and checks its results. A function that throws or does not end counts as a mistake. */
export async function checkCode(exercise: CodeExercise, code: string, timeMs = exercise.timeMs): Promise<Checked> {
  const { Rule, RuleError } = await import('../../../src/extensions/modules/index.ts'); // loaded at the first run
  let rule: OpenRule<'functions' | 'loss'> | undefined;
  try {
    const { name, calls, tokens } = exercise;
    rule = await Rule.open(tokens ? 'loss' : 'functions', code, timeMs);
    const given = await rule.run(tokens ?? { name, calls });
    return checkResults(exercise, tokens ? [given] : (given as unknown[]));
  } catch (error) {
    if (!(error instanceof RuleError)) throw error;
    const { line, column, message } = error;
    return {
      ok: false,
      says: line === undefined ? message.replace(/^it /, 'It ') : `Line ${line}: ${message}`,
      line,
      column,
    };
  } finally {
    rule?.close();
  }
}
