/** Exercises of the appendix: a right answer, and a sentence for each of three usual mistakes. */

import { mulberry32 } from '../../../src/model/random.ts';
import type { CodeExercise, Exercise, KernelExercise } from '../kit/checks.ts';
import { EPS, judge, MISTAKES, TOLERANCE } from './judge.ts';
import text from './rmsnorm.wgsl?raw';
import { byHand } from './stills.ts';

const ADD = / {2}sums\[thread\] = sum;\n[^]*?\n {2}}\n/.exec(text)![0];
const ROOT = 'inverseSqrt(total / f32(params.C) + EPS)';

const KERNEL: KernelExercise = {
  kind: 'kernel',
  id: 'A.1',
  title: 'Complete a kernel',
  task: 'Every thread has the sum of its own squares. Write it where the others can read it, wait for them, add all 64, and take the root of the mean plus EPS. The check runs ten shapes on this GPU and compares them with 64 bits.',
  start: text
    .replace(ADD, '  // Missing: share the sum, wait, and add all 64.\n')
    .replace(ROOT, 'inverseSqrt(sum / f32(params.C))'),
  answer: text,
  hint: 'Three parts are missing: sums[thread] = sum, then workgroupBarrier(), then a loop over all 64 sums. Then EPS under the root.',
  why: `All ten shapes agree with 64 bits to ${TOLERANCE.toExponential(0)}, also for rows of zeros, and for lengths that 64 does not divide.`,
  judge: async (program) => {
    const { measureKernel, onGpu } = await import('./kernel.ts');
    return judge(await onGpu((gpu) => measureKernel(gpu, program)));
  },
  wrong: [
    { given: text.replace(' + EPS', ''), says: MISTAKES.eps },
    { given: text.replace('t < THREADS', 't < THREADS / 2u'), says: MISTAKES.part },
    { given: text.replace(/ {2}workgroupBarrier\(\);.*\n/, ''), says: MISTAKES.barrier },
  ],
};

const uniform = mulberry32(8);
const numbers = (count: number) => Array.from({ length: count }, () => 4 * uniform() - 2);
const CALLS = [1, 2, 3, 5, 8, 13, 32, 63, 64, 96].map((C) => [numbers(C), numbers(C), numbers(C), EPS] as const);

const AVERAGE = '  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;\n';
const RSTD = '  const rstd = 1 / Math.sqrt(mean(x.map((value) => value * value)) + eps);\n';
const code = (common: string, result: string) =>
  `export function gradient(x, weight, dy, eps) {\n${AVERAGE}${RSTD}${common}  return x.map((value, k) => ${result});\n}\n`;
const COMMON = '  const common = mean(x.map((value, k) => weight[k] * dy[k] * value)) * rstd ** 2;\n';
const RESULT = 'rstd * (weight[k] * dy[k] - value * common)';

/** Gradients by usual mistakes, and the sentence for each. */
const WRONG: { of: (...call: (typeof CALLS)[number]) => number[]; says: string }[] = [
  {
    of: (x, weight, dy, eps) => x.map((_, k) => (weight[k] * dy[k]) / root(x, eps)),
    says: 'You held the root constant. Every input is in it, so an input moves all outputs: something times x must be taken away.',
  },
  {
    of: (x, weight, dy, eps) =>
      byHand(
        x,
        x.map(() => 1),
        dy,
        eps,
      ).map((value, k) => value + ((weight[k] - 1) * dy[k]) / root(x, eps)),
    says: 'The weight is missing in the mean: output k is x[k] times weight[k], so its gradient reaches the root with that weight.',
  },
  {
    of: (x, weight, dy, eps) => {
      const [right, first] = [byHand(x, weight, dy, eps), x.map((_, k) => (weight[k] * dy[k]) / root(x, eps))];
      return right.map((value, k) => first[k] + x.length * (value - first[k]));
    },
    says: 'You added where the mean is due: the root has the mean of the squares, so its derivative is divided by the length of the row.',
  },
];
const root = (x: readonly number[], eps: number) =>
  Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / x.length + eps);

const agree = (given: readonly number[], want: readonly number[]) =>
  want.every((value, k) => Math.abs(given[k] - value) <= TOLERANCE * Math.max(1, Math.abs(value)));

const GRADIENT: CodeExercise = {
  kind: 'code',
  id: 'A.2',
  title: 'Write the gradient by hand',
  task: 'dy[k] says how much the loss changes with output k. Return how much it changes with each input: a list as long as x. The start holds the root constant. The check has ten rows.',
  name: 'gradient',
  start: code('', 'rstd * weight[k] * dy[k]'),
  calls: CALLS.map((call) => [...call]),
  answer: code(COMMON, RESULT),
  hint: 'By the chain rule the root adds one number for the whole row: the mean of weight[k] * dy[k] * x[k], times rstd squared. Every input takes x[k] times it away.',
  why: 'The first part is the direct way, from input k to output k. The second goes through the root, which every input changes.',
  judge: (results) => {
    const lists = results.map((one) => (Array.isArray(one) ? one.map(Number) : []));
    const bad = lists.findIndex((list, i) => list.length !== CALLS[i][0].length || list.some(Number.isNaN));
    if (bad >= 0)
      return `For a row of ${CALLS[bad][0].length}, gradient returned ${JSON.stringify(results[bad])}. Return a list with one number for each input.`;
    const equals = (of: (typeof WRONG)[number]['of']) => lists.every((list, i) => agree(list, of(...CALLS[i])));
    if (equals(byHand)) return undefined;
    const known = WRONG.find(({ of }) => equals(of));
    if (known) return known.says;
    const row = lists.findIndex((list, i) => !agree(list, byHand(...CALLS[i])));
    const k = byHand(...CALLS[row]).findIndex((value, i) => !agree([lists[row][i]], [value]));
    return `In a row of ${CALLS[row][0].length}, the gradient of input ${k + 1} is ${byHand(...CALLS[row])[k].toPrecision(4)}, and yours is ${lists[row][k].toPrecision(4)}.`;
  },
  wrong: [
    { given: code('', 'rstd * weight[k] * dy[k]'), says: WRONG[0].says },
    { given: code(COMMON.replace('weight[k] * dy', 'dy'), RESULT), says: WRONG[1].says },
    { given: code(COMMON.replace(' * rstd', ' * x.length * rstd'), RESULT), says: WRONG[2].says },
  ],
};

export const EXERCISES: readonly Exercise[] = [KERNEL, GRADIENT];
