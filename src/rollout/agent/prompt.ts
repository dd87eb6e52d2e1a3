/** Encodes a problem's prompt by the chat template and checks its length. */

import { InputError } from '../../errors.ts';
import { problemName } from '../../tasks/problem.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { AgentLoopInput } from './types.ts';

type PromptInput = Pick<AgentLoopInput, 'tokenizer' | 'problem' | 'tools' | 'limits' | 'toolSchemasInPrompt'>;

/** Encodes a problem's prompt. The tokenizer keeps it: the samples of a group, which start at once, cost one encoding. */
export function encodePrompt({
  tokenizer,
  problem,
  tools,
  toolSchemasInPrompt,
}: Omit<PromptInput, 'limits'>): Uint32Array {
  return tokenizer.encodeChat(problem.messages, toolSchemasInPrompt ? { tools: tools.map(openAiSchema) } : {});
}

/**
 * The prompt of a sample: as encoded where it fits, else cut as `limits.truncation` says, by tokens (verl's
 * data.truncation): left keeps the last tokens, right the first, middle half of each, the odd token at the end.
 * Throws InputError if it is too long and nothing says how to cut it.
 */
export function promptOf(input: PromptInput): Uint32Array {
  const { limits, problem } = input;
  const ids = encodePrompt(input);
  const allowed = Math.min(limits.maxPromptLength, limits.contextLength - 1);
  if (ids.length <= allowed) return ids;
  const firstHalf = Math.floor(allowed / 2);
  switch (limits.truncation) {
    case 'left':
      return ids.slice(-allowed);
    case 'right':
      return ids.slice(0, allowed);
    case 'middle':
      return Uint32Array.from([...ids.slice(0, firstHalf), ...ids.slice(firstHalf - allowed)]);
    default:
      throw new InputError(
        `${problemName(problem)} has a prompt of ${ids.length} tokens, but at most ${allowed} fit (maxPromptLength ` +
          `${limits.maxPromptLength}, context length ${limits.contextLength}). Raise them, skip such problems with ` +
          'data.filterOverlongPrompts, or truncate them with data.truncation.',
      );
  }
}

/** A tool as chat templates get it: OpenAI's function format. */
export function openAiSchema({ name, description, parameters }: Omit<Tool, 'execute'>): unknown {
  return { type: 'function', function: { name, description, parameters } };
}
