/**
 * Formats of tool calls, by verl's names, or by vLLM's if verl has no name. The formats with plain-text tags are in this file, those with
 * control tokens in gptOss.ts, kimi.ts and gemma.ts. A custom parser is any function of type ToolParser.
 */

import { blame, InputError, UserCodeError } from '../../errors.ts';
import type { Tool } from '../../tasks/tool.ts';
import { isObject } from '../../tasks/toolSchema.ts';
import type { CallableTool, CallFormat, SamplingParams } from '../types.ts';
import { between, checkCall, parseJson, taggedBlocks, type ToolCall, type ToolParser, typedValue } from './call.ts';
import { parseFunctionGemma, parseGemma4 } from './gemma.ts';
import { parseGptOss } from './gptOss.ts';
import { parseKimi } from './kimi.ts';

export type { ToolCall, ToolParser } from './call.ts';

/**
 * `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of times; text around the calls is ignored.
 */
export const parseHermes: ToolParser = (text, tools) => callBlocks(text, (body) => readJsonCall(body, tools));

/** `{"name": ..., "parameters": {...}}`, several separated by ";". Text that starts in any other way is not a call. */
export const parseLlama3Json: ToolParser = (text, tools) => {
  const body = text.trim().replace(/^<\|python_tag\|>/, '');
  if (!/^\{\s*"(name|type|function)"/.test(body)) return [];
  return splitObjects(body).map((part) => readJsonCall(part, tools));
};

/** `<tool_call><function=f><parameter=p>value</parameter></function></tool_call>`; the schema sets the types of values. */
export const parseQwenXml: ToolParser = (text, tools) => callBlocks(text, (body) => readXmlCall(body, tools));

/** GLM 4.5: `<tool_call>f\n<arg_key>p</arg_key>\n<arg_value>value</arg_value></tool_call>`; the schema sets the types of values. */
export const parseGlm: ToolParser = (text, tools) => callBlocks(text, (body) => readGlmCall(body, tools));

parseHermes.callFormat = 'hermes';
parseLlama3Json.callFormat = 'llama3_json';
parseQwenXml.callFormat = 'qwen3_coder';
parseGlm.callFormat = 'glm';
parseGlm.stopToken = '<|observation|>';

/** Built-in parsers, by the names in `rollout.multiTurn.format`. */
export const TOOL_PARSERS = {
  hermes: parseHermes,
  llama3_json: parseLlama3Json,
  qwen3_coder: parseQwenXml,
  glm: parseGlm,
  'gpt-oss': parseGptOss,
  kimi: parseKimi,
  functiongemma: parseFunctionGemma,
  gemma4: parseGemma4,
} as const satisfies Record<string, ToolParser>;

/**
 * Returns the format of a parser's calls. Throws InputError if the parser has no `callFormat`, or if calls in its format cannot be
 * constrained.
 */
export function callFormatOf({ callFormat, stopToken }: ToolParser): CallFormat {
  if (callFormat) return callFormat;
  const formats = Object.entries(TOOL_PARSERS).flatMap(([name, parser]) => ('callFormat' in parser ? [name] : []));
  throw new InputError(
    stopToken === undefined
      ? 'constrainToolCalls is on, but the tool parser has no callFormat, so the format of its calls is unknown. ' +
          `Set it to the format it reads (${formats.join(', ')}), or turn constrainToolCalls off.`
      : 'constrainToolCalls is on, but calls of this format are written with control tokens, which a mask over texts ' +
          `cannot see. Formats that can be constrained: ${formats.join(', ')}. Turn constrainToolCalls off.`,
  );
}

/** Returns the constraint that a turn's calls are valid calls of these tools. Throws like `callFormatOf`. */
export function callConstraint(
  tools: readonly CallableTool[],
  parser: ToolParser,
): Required<Pick<SamplingParams, 'toolCalls' | 'toolCallFormat'>> {
  const toolCalls = tools.map(({ name, parameters }) => ({ name, parameters }));
  return { toolCalls, toolCallFormat: callFormatOf(parser) };
}

/** Returns a built-in or registered parser. Throws InputError for an unknown name. */
export function toolParserOf(format: string): ToolParser {
  const parser = (TOOL_PARSERS as Record<string, ToolParser>)[format];
  if (parser) return parser;
  throw new InputError(`There is no tool parser "${format}"; known: ${Object.keys(TOOL_PARSERS).join(', ')}.`);
}

/**
 * Returns the calls that a parser finds in a text. Throws UserCodeError if the parser fails, or does not return a list
 * of calls.
 */
export function parsedBy(parser: ToolParser, text: string, tools: Tool[]): ToolCall[] {
  const expected = 'Return a list of { name, args } or { error }';
  try {
    const calls: unknown = parser(text, tools);
    if (Array.isArray(calls) && calls.every(isCall)) return calls;
    throw new UserCodeError('tool parser returned', `The tool parser returned no list of calls. ${expected}.`);
  } catch (error) {
    throw blame('tool parser', 'The tool parser', error, expected);
  }
}

const isCall = (call: unknown): call is ToolCall =>
  isObject(call) && (typeof call['error'] === 'string' || (typeof call['name'] === 'string' && isObject(call['args'])));

/** Reads the calls between `<tool_call>` and `</tool_call>`. */
const callBlocks = (text: string, read: (body: string) => ToolCall): ToolCall[] =>
  taggedBlocks(text, '<tool_call>', '</tool_call>').map(({ body, closed }) =>
    closed ? read(body) : { error: 'Error: <tool_call> without </tool_call>' },
  );

/** Splits `{...}; {...}` into its top-level objects; a ";" inside a string does not split. */
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

/**
 * Reads a call as a JSON object. Accepts both "arguments" and "parameters", because models write either, whatever the format requires. So
 * does vLLM.
 */
function readJsonCall(text: string, tools: Tool[]): ToolCall {
  const call = parseJson(text);
  if (call === undefined) return { error: 'Error: the tool call is not valid JSON' };
  if (!isObject(call) || typeof call['name'] !== 'string') return { error: 'Error: the tool call has no "name"' };
  return checkCall(call['name'], call['arguments'] ?? call['parameters'] ?? {}, tools);
}

function readXmlCall(text: string, tools: Tool[]): ToolCall {
  const head = /^\s*<function=([^>\s]+)>/.exec(text);
  if (!head) return { error: 'Error: the tool call has no <function=name>' };
  const [{ length }, name] = head;
  const args: [string, unknown][] = [];
  const opening = /<parameter=([^<>\s]+)>/g;
  opening.lastIndex = length;
  for (let open = opening.exec(text); open; open = opening.exec(text)) {
    const end = text.indexOf('</parameter>', opening.lastIndex);
    if (end < 0) break;
    const value = text.slice(opening.lastIndex, end).replace(/^\n/, '').replace(/\n$/, '');
    args.push([open[1], typedValue(value, name, open[1], tools)]);
    opening.lastIndex = end;
  }
  return checkCall(name, Object.fromEntries(args), tools);
}

function readGlmCall(text: string, tools: Tool[]): ToolCall {
  const first = text.indexOf('<arg_key>');
  const name = (first < 0 ? text : text.slice(0, first)).trim();
  const args: [string, unknown][] = [];
  for (let at = first; at >= 0; at = text.indexOf('<arg_key>', at)) {
    const key = between(text, '<arg_key>', '</arg_key>', at);
    const value = key && between(text, '<arg_value>', '</arg_value>', key.end);
    if (!value) return { error: 'Error: an <arg_key> has no </arg_key> and <arg_value>...</arg_value> after it' };
    const trimmed = key.inner.trim();
    args.push([trimmed, typedValue(value.inner, name, trimmed, tools)]);
    at = value.end;
  }
  return checkCall(name, Object.fromEntries(args), tools);
}
