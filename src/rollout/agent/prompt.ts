/** Encodes a problem's prompt with the chat template and checks its length. */

import { InputError } from '../../errors.ts';
import { type Problem, problemName } from '../../tasks/problem.ts';
import type { ChatTokenizer } from '../../model/tokenizer/chat.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { AgentLoopInput } from './types.ts';

type PromptInput = Pick<AgentLoopInput, 'tokenizer' | 'problem' | 'tools' | 'limits' | 'toolSchemasInPrompt'>;

interface ToolSettings {
  multiTurn: { enable: boolean };
  agent: { defaultAgentLoop: string };
}

interface SchemaSettings extends ToolSettings {
  multiTurn: { enable: boolean; toolSchemasInPrompt: boolean | 'auto' };
}

/** True for the names of the agent loop that generates one answer: ours, and verl's. */
export const isSingleTurn = (loop: string): boolean => loop === 'single_turn' || loop === 'single_turn_agent';

/** Returns true if samples can call tools. Otherwise a tool call in a response is plain text. */
export function callsTools({ multiTurn, agent }: ToolSettings): boolean {
  return multiTurn.enable && !isSingleTurn(agent.defaultAgentLoop);
}

/**
 * Returns true if prompts contain the schemas of tools. The setting "auto" means true if samples can call tools and the chat template
 * renders schemas.
 * @param problem problem of the prompt, whose own agent loop decides if samples can call tools. Default: the run's loop
 */
export function writesSchemas(
  { multiTurn, agent }: SchemaSettings,
  tokenizer: ChatTokenizer,
  problem: Pick<Problem, 'agentName'> = {},
): boolean {
  if (multiTurn.toolSchemasInPrompt !== 'auto') return multiTurn.toolSchemasInPrompt;
  const loop = { defaultAgentLoop: problem.agentName ?? agent.defaultAgentLoop };
  return callsTools({ multiTurn, agent: loop }) && tokenizer.readsTools;
}

/** Encodes a problem's prompt. The tokenizer caches the result, so a prompt is encoded once for all samples of its group. */
export function encodePrompt({
  tokenizer,
  problem,
  tools,
  toolSchemasInPrompt,
}: Omit<PromptInput, 'limits'>): Uint32Array {
  return tokenizer.encodeChat(problem.messages, toolSchemasInPrompt ? { tools: tools.map(openAiSchema) } : {});
}

/**
 * Returns the prompt of a sample as tokens. If the prompt is too long, truncates it as `limits.truncation` sets (verl's data.truncation):
 * left keeps the last tokens, right the first, and middle half of each, with an odd token at the end. Throws InputError if the prompt is
 * too long and no truncation is set.
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

/** Returns a tool in the form that chat templates expect: OpenAI's function format. */
export function openAiSchema({ name, description, parameters }: Omit<Tool, 'execute'>): unknown {
  return { type: 'function', function: { name, description, parameters } };
}
