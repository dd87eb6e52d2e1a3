/**
 * countdown: write an expression that uses each of the given numbers once and has the given value (as in the television game, and in
 * TinyZero's reproduction of R1). Problems are made from a solution, so every problem has one.
 */

import { InputError } from '../../errors.ts';
import { checkOptions } from './checkOptions.ts';
import { Levels } from './levels.ts';
import type { Rng } from '../../tasks/random.ts';
import { splitTask } from './split.ts';
import type { Problem, Reward, ScoredSample, SyncTask } from '../../tasks/task.ts';
import { evaluate } from '../../tasks/tools/calculator.ts';

export const COUNTDOWN_OPTIONS = {
  /** Minimum and maximum count of the numbers that a problem gives. */
  minNumbers: 2,
  maxNumbers: 3,
  /** Largest number that a problem gives. */
  maxNumber: 12,
  /** Largest target value. */
  maxTarget: 100,
  /** Score of an expression that uses the numbers correctly but has the wrong value. */
  formatScore: 0.1,
  /**
   * True if training starts with minNumbers numbers per problem, and adds more as problems are solved. Held-out problems have all sizes.
   */
  curriculum: false,
};

/** Example: numbers [3, 8, 1], answer '25', solution '3*8+1'. */
export interface CountdownProblem extends Problem {
  numbers: number[];
  solution: string;
}

const OPERATIONS = ['+', '-', '*'];

/** Creates the countdown task: reach a value from given numbers by + - * /. Throws InputError if an option is out of range. */
export function countdownTask(options: Partial<typeof COUNTDOWN_OPTIONS> = {}): SyncTask {
  const o = { ...COUNTDOWN_OPTIONS, ...options };
  checkOptions('countdown', o, { minNumbers: [2, 8], maxNumbers: [2, 8], maxNumber: [2, 1e6], maxTarget: [1, 1e9] });
  const levels = o.curriculum ? new Levels(o.minNumbers, o.maxNumbers) : undefined;
  const { train, heldOut } = splitTask<CountdownProblem>('countdown', (rng, isHeldOut) => {
    const maxNumbers = isHeldOut || !levels ? o.maxNumbers : levels.level;
    const { numbers, solution, target } = drawProblem(rng, { ...o, maxNumbers });
    const shown = [...numbers].sort((a, b) => a - b);
    const problem = {
      messages: [{ role: 'user' as const, content: `Make ${target} from ${shown.join(', ')}.` }],
      answer: String(target),
      template: `${numbers.length} numbers`,
      numbers: shown,
      solution,
    };
    return { problem, key: problem.messages[0].content };
  });
  return {
    name: 'countdown',
    train,
    heldOut,
    reward: (sample) => countdownReward(sample, o.formatScore),
    demonstrate: (problem, rng, errorRate) => {
      const { numbers, solution } = problem as CountdownProblem;
      const written = rng.uniform() < errorRate ? randomExpression(numbers, rng) : solution;
      return [{ role: 'assistant', content: `<answer>${written}</answer>` }];
    },
    tokenizer: { vocabSize: 320, wordShare: 0.9 },
    ...(levels && {
      observe: (problem, rewards) =>
        levels.observe(
          (problem as CountdownProblem).numbers.length,
          rewards.map(({ acc }) => acc),
        ),
      state: () => levels.state(),
      restore: (state) => levels.restore(state),
    }),
  };
}

/** Maximum number of random expressions per problem. The values of most are not integers in the target range. */
const MAX_DRAWS = 100_000;

function drawProblem(rng: Rng, { minNumbers, maxNumbers, maxNumber, maxTarget }: typeof COUNTDOWN_OPTIONS) {
  for (let tries = 0; tries < MAX_DRAWS; tries++) {
    const numbers = Array.from({ length: rng.int(minNumbers, maxNumbers) }, () => rng.int(1, maxNumber));
    const solution = randomExpression(numbers, rng);
    const value = evaluate(solution);
    const target = Math.round(value);
    if (Math.abs(value - target) < TOLERANCE && target > 0 && target <= maxTarget && !numbers.includes(target))
      return { numbers, solution, target };
  }
  throw new InputError(
    `countdown: ${minNumbers} to ${maxNumbers} numbers up to ${maxNumber} do not make a target up to ${maxTarget}. Raise maxNumber, maxNumbers or maxTarget.`,
  );
}

/** Returns an expression of the numbers in random order, with a random operation between two numbers. * and / precede + and -. */
function randomExpression(numbers: number[], rng: Rng): string {
  const left = [...numbers];
  const take = () => String(left.splice(rng.int(0, left.length - 1), 1)[0]);
  let text = take();
  while (left.length > 0) text += rng.pick(OPERATIONS) + take();
  return text;
}

/** Largest distance of a right expression from the target. A quotient such as 1/3 is not exact in floating point. */
const TOLERANCE = 1e-5;

/** Scores the last `<answer>...</answer>` of a response. It is right if it uses each number once and has the target value. */
function countdownReward({ problem, response }: ScoredSample, formatScore: number): Reward {
  const written = [...response.matchAll(/<answer>([^<]*)<\/answer>/g)].at(-1)?.[1].replaceAll(' ', '');
  const { numbers } = problem as CountdownProblem;
  const formed = written !== undefined && usesEachOnce(written, numbers);
  const acc = formed && Math.abs(evaluate(written) - Number(problem.answer)) < TOLERANCE ? 1 : 0;
  const extra = { formed: formed ? 1 : 0 };
  return { score: acc || (formed ? formatScore : 0), acc, extra, ...(written !== undefined && { pred: written }) };
}

function usesEachOnce(expression: string, numbers: number[]): boolean {
  if (!/^[\d+\-*/()]+$/.test(expression)) return false;
  const used = (expression.match(/\d+/g) ?? []).map(Number).sort((a, b) => a - b);
  const given = [...numbers].sort((a, b) => a - b);
  return used.length === given.length && used.every((n, i) => n === given[i]);
}
