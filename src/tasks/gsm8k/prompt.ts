/** The prompt of a GSM8K problem for a model that was not trained on its answer line: a system message, a closing instruction. */

import { InputError } from '../../errors.ts';
import { ANSWER_PARSERS, type AnswerParser } from './reward.ts';
import { placed } from '../problem.ts';
import type { Problem } from '../task.ts';

export interface PromptOptions {
  /** System message in front; empty = none, and the chat template may then put its own. */
  systemPrompt: string;
  /** Added to the question after a space. verl: Let's think step by step and output the final answer after "####". */
  instruction: string;
  /** How the answer is found in a response. */
  parser: AnswerParser;
}

export const NO_PROMPT: PromptOptions = { systemPrompt: '', instruction: '', parser: 'strict' };

/** Throws InputError for a parser that does not exist. */
export function checkParser(parser: string | undefined): void {
  if (parser === undefined || (ANSWER_PARSERS as readonly string[]).includes(parser)) return;
  throw new InputError(`task.options.parser is "${parser}"; allowed: ${ANSWER_PARSERS.join(', ')}.`);
}

/** The problem with both texts; the problem itself where there are none. */
export function prompted<P extends Problem>(problem: P, options: Partial<PromptOptions>): P {
  const { systemPrompt, instruction } = { ...NO_PROMPT, ...options };
  if (systemPrompt === '' && instruction === '') return problem;
  const last = problem.messages.length - 1;
  const asked = problem.messages.map(({ role, content }, i) => ({
    role,
    content: i === last && instruction !== '' ? `${content} ${instruction}` : content,
  }));
  const system = systemPrompt === '' ? [] : [{ role: 'system' as const, content: systemPrompt }];
  return placed({ ...problem, messages: [...system, ...asked] }, problem);
}
