/** Encodes a problem's prompt by the chat template and checks its length. */

import { InputError } from '../../errors.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { AgentLimits, AgentLoopInput } from './types.ts';

type PromptInput = Pick<AgentLoopInput, 'tokenizer' | 'problem' | 'tools' | 'limits' | 'toolSchemasInPrompt'>;

/** Throws InputError when the problem's prompt, written as a rollout would write it, is longer than the limits allow. */
export function assertPromptFits(input: PromptInput): void {
  checkPrompt(encodePrompt(input).length, input.problem.id, input.limits);
}

/** Encodes a problem's prompt. The tokenizer keeps it: the samples of a group, which start at once, cost one encoding. */
export function encodePrompt({
  tokenizer,
  problem,
  tools,
  toolSchemasInPrompt,
}: Omit<PromptInput, 'limits'>): Uint32Array {
  return tokenizer.encodeChat(problem.messages, toolSchemasInPrompt ? { tools: tools.map(openAiSchema) } : {});
}

/** Throws InputError if a prompt of `length` tokens is longer than the limits allow. */
export function checkPrompt(length: number, problemId: string, limits: AgentLimits): void {
  const allowed = Math.min(limits.maxPromptLength, limits.contextLength - 1);
  if (length <= allowed) return;
  throw new InputError(
    `Problem "${problemId}" has a prompt of ${length} tokens, but at most ${allowed} fit ` +
      `(maxPromptLength ${limits.maxPromptLength}, context length ${limits.contextLength}); raise them or leave it out.`,
  );
}

function openAiSchema({ name, description, parameters }: Tool): unknown {
  return { type: 'function', function: { name, description, parameters } };
}
