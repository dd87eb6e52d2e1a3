/**
 * Adds a system message and a closing instruction to a GSM8K problem. A model that was not trained to write the line `#### N` needs them.
 */

import { InputError } from '../../../errors.ts';
import { ANSWER_PARSERS, type AnswerParser } from '../../../tasks/gsm8k/reward.ts';
import { placed } from '../../../tasks/problem.ts';
import type { Problem } from '../../../tasks/task.ts';

/** Options for the prompt and the answer parser. */
export interface PromptOptions {
  /** System message at the start. If empty, the chat template can add its own. */
  systemPrompt: string;
  /**
   * Instruction that is added to the question after a space. verl's is: Let's think step by step and output the final answer after "####".
   */
  instruction: string;
  /** Method that finds the answer in a response. */
  parser: AnswerParser;
}

export const NO_PROMPT: PromptOptions = { systemPrompt: '', instruction: '', parser: 'strict' };

/** Throws InputError if the parser is unknown. */
export function checkParser(parser: string | undefined): void {
  if (parser === undefined || (ANSWER_PARSERS as readonly string[]).includes(parser)) return;
  throw new InputError(
    `task.options.parser is "${parser}"; allowed: ${ANSWER_PARSERS.join(', ')}. Change it, or leave it out.`,
  );
}

/** Returns the problem with the system message and the instruction, or the problem itself if both texts are empty. */
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
