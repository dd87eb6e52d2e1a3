/**
 * Word problems like those of GSM8K (arXiv:2110.14168), with a calculator. They are generated from templates, or read from GSM8K's own
 * JSONL files. Training and held-out problems are disjoint by a hash of template and numbers. Names and things are not part of the hash.
 */

import { InputError } from '../../errors.ts';
import { hash, keyedRng } from '../random.ts';
import type { Rng } from '../random.ts';
import { ITEMS, NAMES, TEMPLATES } from './templates.ts';
import type { Template } from './templates.ts';
import { gsm8kReward, NO_SHAPING } from './reward.ts';
import type { Shaping } from './reward.ts';
import type { Problem, SyncTask } from '../task.ts';
import { calculate, calculator } from '../tools/calculator.ts';

/** Example: "Tom has 3 bags of 4 pens and 5 more pens. ...", program ['3*4', '#1+5'], answer '17'. */
export interface Gsm8kProblem extends Problem {
  /** Calculator expressions in order; #1 stands for the result of the first one. */
  program: string[];
}

/** One problem in eight is held out. */
const HELD_OUT_SHARE = 8;
/** Maximum number of draws for a held-out problem. If none of them is new, its template counts as exhausted. */
const MAX_DRAWS = 20_000;

/** Creates the task with generated problems. `train` is endless. `heldOut` cycles through the templates and never repeats a problem. */
export function gsm8kToolTask(options: { shaping?: Partial<Shaping> } = {}): SyncTask {
  const shaping = { ...NO_SHAPING, ...options.shaping };
  let held: Gsm8kProblem[] = [];
  return {
    name: 'gsm8k-tool',
    train: trainProblem,
    heldOut: (count) => {
      if (held.length < count) held = heldOutProblems(count);
      return held.slice(0, count);
    },
    tools: [calculator],
    reward: (sample) => gsm8kReward(sample, shaping),
  };
}

/** Returns training problem number `index` for a run's seed. */
export function trainProblem(index: number, seed: number): Gsm8kProblem {
  const rng = keyedRng('gsm8k-train', seed, index);
  const template = rng.pick(TEMPLATES);
  return makeProblem(`train-${index}`, template, drawNumbers(template, rng, false), rng);
}

/** Returns held-out problems, the same for every seed of a run. Throws InputError if a template has no more new problems. */
export function heldOutProblems(count: number): Gsm8kProblem[] {
  const rng = keyedRng('gsm8k-held-out');
  const seen = new Set<string>();
  return Array.from({ length: count }, (_, index) => {
    const template = TEMPLATES[index % TEMPLATES.length];
    for (let draw = 0; draw < MAX_DRAWS; draw++) {
      const numbers = drawNumbers(template, rng, true);
      const key = problemKey(template, numbers);
      if (seen.has(key)) continue;
      seen.add(key);
      return makeProblem(`held-out-${index}`, template, numbers, rng);
    }
    throw new InputError(
      `${count} held-out problems were requested, but template "${template.id}" has no more than ` +
        `${Math.floor(index / TEMPLATES.length)}. Ask for at most ${index}.`,
    );
  });
}

/** Returns true if the problem with these numbers belongs to the held-out set. */
export function isHeldOut(templateId: string, numbers: Record<string, number>): boolean {
  return hash(problemKey({ id: templateId }, numbers)) % HELD_OUT_SHARE === 0;
}

function problemKey({ id }: { id: string }, numbers: Record<string, number>): string {
  const sorted = Object.keys(numbers).sort();
  return [id, ...sorted.map((name) => `${name}=${numbers[name]}`)].join(' ');
}

function drawNumbers(template: Template, rng: Rng, heldOut: boolean): Record<string, number> {
  for (;;) {
    const numbers = template.numbers(rng);
    if (isHeldOut(template.id, numbers) === heldOut) return numbers;
  }
}

function makeProblem(id: string, template: Template, numbers: Record<string, number>, rng: Rng): Gsm8kProblem {
  const [n, m] = pickTwo(NAMES, rng);
  const [x, y] = pickTwo(ITEMS, rng);
  const values: Record<string, string | number> = { ...numbers, n, m, x, y };
  const fill = (text: string) => text.replace(/\{(\w)\}/g, (_, name: string) => String(values[name]));
  const program = template.steps.map(fill);
  const question = fill(template.text);
  return {
    id,
    messages: [{ role: 'user', content: question }],
    answer: runProgram(program).at(-1) ?? '',
    template: template.id,
    program,
  };
}

function pickTwo<T>(items: readonly T[], rng: Rng): [T, T] {
  const first = rng.int(0, items.length - 1);
  const second = (first + rng.int(1, items.length - 1)) % items.length;
  return [items[first], items[second]];
}

/** Evaluates the steps of a program and returns the result of each. Later steps can use earlier results. */
function runProgram(program: string[]): string[] {
  const results: string[] = [];
  for (const step of program) results.push(calculate(fillResults(step, results)));
  return results;
}

/** Replaces #1, #2, ... in a step by earlier results. */
export function fillResults(step: string, results: string[]): string {
  return step.replace(/#(\d+)/g, (_, number: string) => results[Number(number) - 1]);
}
