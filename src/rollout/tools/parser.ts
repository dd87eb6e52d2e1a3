/**
 * Finds the tool calls in what an assistant wrote. Three formats: Hermes JSON (Qwen2.5, Qwen3, our own checkpoints),
 * Qwen3-coder's XML, Llama 3's JSON. A user's own parser is any function of this type.
 *
 * A call that cannot be read becomes an error text for the model, never an exception: the model is the one to correct it.
 */

import { InputError } from '../../errors.ts';
import type { Tool } from '../../tasks/tool.ts';
import { argumentProblem, isObject } from '../../tasks/toolSchema.ts';
import type { CallFormat } from '../constrained/toolGrammar.ts';

export type ToolCall =
  | { name: string; args: Record<string, unknown>; error?: undefined }
  /** A call that cannot run; `error` is what the model reads in place of the tool's output. */
  | { error: string };

export interface ToolParser {
  (text: string, tools: Tool[]): ToolCall[];
  /** The format whose calls it reads; without it they cannot be constrained (constrainToolCalls). */
  callFormat?: CallFormat;
}

/** `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them, text around them ignored. */
export const parseHermes: ToolParser = (text, tools) =>
  taggedBlocks(text).map((block) => (block.closed ? readJsonCall(block.body, 'arguments', tools) : NOT_CLOSED));

/** `{"name": ..., "parameters": {...}}`, several separated by ";". Text that does not start so is no call. */
export const parseLlama3Json: ToolParser = (text, tools) => {
  const body = text.trim().replace(/^<\|python_tag\|>/, '');
  if (!/^\{\s*"(name|type|function)"/.test(body)) return [];
  return splitObjects(body).map((part) => readJsonCall(part, 'parameters', tools));
};

/** `<tool_call><function=f><parameter=p>value</parameter></function></tool_call>`; values typed by the schema. */
export const parseQwenXml: ToolParser = (text, tools) =>
  taggedBlocks(text).map((block) => (block.closed ? readXmlCall(block.body, tools) : NOT_CLOSED));

parseHermes.callFormat = 'hermes';
parseLlama3Json.callFormat = 'llama3_json';
parseQwenXml.callFormat = 'qwen3_coder';

export const TOOL_PARSERS = { hermes: parseHermes, llama3_json: parseLlama3Json, qwen3_coder: parseQwenXml } as const;

/** The format of a parser's calls; throws InputError if the parser does not say. */
export function callFormatOf({ callFormat }: ToolParser): CallFormat {
  if (callFormat) return callFormat;
  throw new InputError(
    'constrainToolCalls is on, but the tool parser has no callFormat, so nobody knows what its calls look like; ' +
      `set it to the format it reads (${Object.keys(TOOL_PARSERS).join(', ')}), or turn constrainToolCalls off.`,
  );
}

/** Throws InputError for a name that is neither shipped nor registered. */
export function toolParserOf(format: string): ToolParser {
  const parser = (TOOL_PARSERS as Record<string, ToolParser>)[format];
  if (parser) return parser;
  throw new InputError(`There is no tool parser "${format}"; known are ${Object.keys(TOOL_PARSERS).join(', ')}.`);
}

const NOT_CLOSED: ToolCall = { error: 'Error: <tool_call> without </tool_call>' };

function taggedBlocks(text: string): { body: string; closed: boolean }[] {
  return text
    .split('<tool_call>')
    .slice(1)
    .map((rest) => {
      const end = rest.indexOf('</tool_call>');
      return { body: end < 0 ? rest : rest.slice(0, end), closed: end >= 0 };
    });
}

/** Top-level objects of `{...}; {...}`; a ";" inside a string does not split. */
function splitObjects(text: string): string[] {
  const parts: string[] = [];
  let [depth, start, inString] = [0, 0, false];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (inString) {
      if (c === '\\') i++;
      else if (c === '"') inString = false;
    } else if (c === '"') inString = true;
    else if (c === '{') depth++;
    else if (c === '}') depth--;
    else if (c === ';' && depth === 0) {
      parts.push(text.slice(start, i));
      start = i + 1;
    }
  }
  return [...parts, text.slice(start)].filter((part) => part.trim() !== '');
}

function readJsonCall(text: string, argumentsKey: string, tools: Tool[]): ToolCall {
  let call: unknown;
  try {
    call = JSON.parse(text);
  } catch {
    return { error: 'Error: the tool call is not valid JSON' };
  }
  if (!isObject(call) || typeof call['name'] !== 'string') return { error: 'Error: the tool call has no "name"' };
  return checkCall(call['name'], call[argumentsKey] ?? {}, tools);
}

function readXmlCall(text: string, tools: Tool[]): ToolCall {
  const call = /^\s*<function=([^>\s]+)>([\s\S]*?)(<\/function>\s*)?$/.exec(text);
  if (!call) return { error: 'Error: the tool call has no <function=name>' };
  const [, name, body] = call;
  const schema = tools.find((tool) => tool.name === name)?.parameters;
  const args: Record<string, unknown> = {};
  for (const [, key, value] of body.matchAll(/<parameter=([^>\s]+)>\n?([\s\S]*?)\n?<\/parameter>/g)) {
    args[key] = schema?.properties[key]?.type === 'string' ? value : jsonOrText(value);
  }
  return checkCall(name, args, tools);
}

function jsonOrText(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** Name known, arguments an object that fits the schema; else an error text that names what is allowed. */
function checkCall(name: string, args: unknown, tools: Tool[]): ToolCall {
  const tool = tools.find((candidate) => candidate.name === name);
  if (!tool) return { error: `Error: no tool "${name.slice(0, 40)}"; there is ${tools.map((t) => t.name).join(', ')}` };
  if (!isObject(args)) return { error: `Error: the arguments of ${name} must be a JSON object` };
  const problem = argumentProblem(args, tool.parameters);
  return problem === null ? { name, args } : { error: `Error: ${name}: ${problem}` };
}
