/**
 * Demonstrations for the supervised warm start: correct ones, and ones with deliberate mistakes. A mistake in more than half of the
 * demonstrations becomes the model's most likely choice, and GRPO can learn that the other choice has a higher reward. If mistakes were
 * random noise, greedy decoding would already be right, and nothing would be left to learn.
 */

import { InputError } from '../../errors.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import { conversationTokens, type DemonstrationTokens } from './conversationTokens.ts';
import { fillResults } from '../../tasks/gsm8k/task.ts';
import type { Gsm8kProblem } from '../../tasks/gsm8k/task.ts';
import { TEMPLATES } from '../../tasks/gsm8k/templates.ts';
import type { Rng } from '../../tasks/random.ts';
import type { Message } from '../../tasks/task.ts';
import { isErrorText } from '../../tasks/toolOutput.ts';
import { calculate } from '../../tasks/tools/calculator.ts';

interface ErrorRates {
  /** Fraction of demonstrations without a call. They answer with the last number of the question. */
  guessed?: number | undefined;
  /** Fraction of demonstrations whose first operation is swapped for its opposite (* and /, + and -). */
  firstSwapped: number;
  /** Probability of a mistake in each later step. One half of the mistakes swap the operation, the other half replace an operand. */
  laterWrong: number;
  /** Other rates for some templates, by id of the template. */
  byTemplate?: Record<string, { firstSwapped: number; laterWrong: number }>;
}

export const NO_ERRORS: ErrorRates = { firstSwapped: 0, laterWrong: 0 };

/**
 * Returns error rates that limit the error `firstSwapped` to demonstrations of some templates. `ids`: ids of these templates, separated by
 * commas; '' = all templates.
 */
export function swapOnlyIn({ guessed, firstSwapped, laterWrong }: ErrorRates, ids: string): ErrorRates {
  const known = TEMPLATES.map(({ id }) => id);
  const chosen = ids === '' ? known : ids.split(',');
  const unknown = chosen.find((id) => !known.includes(id));
  if (unknown !== undefined)
    throw new InputError(`data.demonstrations.swappedTemplates names "${unknown}"; known: ${known.join(', ')}.`);
  const swapped = { firstSwapped, laterWrong };
  const right = { firstSwapped: laterWrong, laterWrong };
  return {
    guessed,
    ...swapped,
    byTemplate: Object.fromEntries(known.map((id) => [id, chosen.includes(id) ? swapped : right])),
  };
}

/** Example: calls [{ expression: '48/2', result: '24' }], final '#### 24'. */
interface Trace {
  calls: { expression: string; result: string }[];
  final: string;
}

const OPPOSITE: Record<string, string> = { '*': '/', '/': '*', '+': '-', '-': '+' };

/**
 * Returns a demonstration of the problem's program. The calculator computes all results, those of wrong expressions too. After a mistake the
 * final text is the last result, otherwise the problem's answer. The two can differ without a mistake, because some solutions of GSM8K do
 * not annotate their last step.
 */
export function demonstration(problem: Gsm8kProblem, rng: Rng, errors: ErrorRates = NO_ERRORS): Trace {
  if (rng.uniform() < (errors.guessed ?? 0)) return { calls: [], final: `#### ${lastNumber(problem)}` };
  const rates = errors.byTemplate?.[problem.template ?? ''] ?? errors;
  const program = problem.program.map((step, i) => {
    const rate = i === 0 ? rates.firstSwapped : rates.laterWrong;
    if (rng.uniform() >= rate) return step;
    return i === 0 || rng.uniform() < 0.5 ? swapOperation(step) : swapOperand(step, i, problem.program, rng);
  });
  const isWrong = program.some((step, i) => step !== problem.program[i]);
  const trace = isWrong ? runTrace(program) : null;
  // A mistake can lead to a division by zero. The correct program is used then.
  return trace ?? runTrace(problem.program, problem.answer)!;
}

/** Returns a demonstration without any calculation: the last number of the question is the answer. */
function lastNumber({ messages }: Gsm8kProblem): string {
  return messages.at(-1)?.content.match(/\d+/g)?.at(-1) ?? '0';
}

/** Runs the steps of a program; null if the result of a step is not a number. The final text is `answer`, by default the last result. */
function runTrace(program: string[], answer?: string): Trace | null {
  const calls: Trace['calls'] = [];
  for (const step of program) {
    const expression = fillResults(
      step,
      calls.map((call) => call.result),
    );
    const result = calculate(expression);
    if (isErrorText(result)) return null;
    calls.push({ expression, result });
  }
  return { calls, final: `#### ${answer ?? calls.at(-1)?.result}` };
}

/** Returns a step `a op b` with its operation swapped for the opposite one. Steps of another form, as in real data, stay unchanged. */
function swapOperation(step: string): string {
  return step.replace(/^([#\d.]+)([-+*/])([#\d.]+)$/, (_, a: string, op: string, b: string) => a + OPPOSITE[op] + b);
}

/** Returns a step with one operand replaced by a different number of the problem, or by the result of an earlier step. */
function swapOperand(step: string, index: number, program: string[], rng: Rng): string {
  const operands = /^([#\d.]+)([-+*/])([#\d.]+)$/.exec(step);
  if (!operands) return step;
  const [, left, operation, right] = operands;
  const numbers = program.flatMap((other) => other.match(/#?\d+(\.\d+)?/g) ?? []).filter((n) => !n.startsWith('#'));
  const results = Array.from({ length: index }, (_, i) => `#${i + 1}`);
  const others = [...new Set([...numbers, ...results])].filter((operand) => operand !== left && operand !== right);
  if (others.length === 0) return swapOperation(step);
  const wrong = rng.pick(others);
  return rng.uniform() < 0.5 ? wrong + operation + right : left + operation + wrong;
}

/** Returns an assistant message that calls the calculator, in the Hermes format. */
export function calculatorCall(expression: string): string {
  return `<tool_call>{"name":"calculator","arguments":{"expression":${JSON.stringify(expression)}}}</tool_call>`;
}

/** Returns the tokens that the agent loop would have produced if the model had written this demonstration. */
export function demonstrationTokens(
  tokenizer: ChatTokenizer,
  problem: Gsm8kProblem,
  trace: Trace,
): DemonstrationTokens {
  const turns = trace.calls.flatMap(({ expression, result }): Message[] => [
    { role: 'assistant', content: calculatorCall(expression) },
    { role: 'tool', content: result },
  ]);
  return conversationTokens(tokenizer, problem, [...turns, { role: 'assistant', content: trace.final }]);
}
