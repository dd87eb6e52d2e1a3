/** Type of a parsed tool call, and functions that parsers share. */

import type { Tool } from '../../tasks/tool.ts';
import { argumentProblem, isObject, valueProblem } from '../../tasks/toolSchema.ts';
import type { CallFormat } from '../types.ts';

/** A parsed tool call. `id` and `name` are as the model wrote them, if the format has them and they can be read. */
export type ToolCall =
  | { name: string; args: Record<string, unknown>; id?: string; error?: undefined }
  /** A tool call that cannot run. The model reads `error` instead of a tool's output. */
  | { error: string; name?: string; id?: string };

/**
 * Finds the tool calls in an assistant's text. If a call cannot be read, the model gets an error text, because the model must correct it.
 * No exception is thrown.
 */
export interface ToolParser {
  (text: string, tools: Tool[]): ToolCall[];
  /** Format of the calls. If undefined, calls cannot be constrained (constrainToolCalls). */
  callFormat?: CallFormat;
  /**
   * Token after a turn's calls, for formats that write calls with control tokens. If the tokenizer has the token, it also ends a turn. The
   * parser, rewards and logs then receive texts that contain the names of control tokens. Tool outputs are rendered after a message with
   * `tool_calls`, which the chat templates of these formats require.
   */
  stopToken?: string;
}

/**
 * Returns the call if the tool is known and the arguments are an object that fits its schema. Otherwise returns an error text that names
 * what is allowed.
 */
export function checkCall(name: string, args: unknown, tools: Tool[]): ToolCall {
  const tool = tools.find((candidate) => candidate.name === name);
  if (!tool) return { error: `Error: no tool "${name.slice(0, 40)}"; there is ${tools.map((t) => t.name).join(', ')}` };
  if (!isObject(args)) return { error: `Error: the arguments of ${name} must be a JSON object`, name };
  const problem = argumentProblem(args, tool.parameters) ?? noArgument(args, DEEPEST_ARGUMENTS);
  return problem === null ? { name, args } : { error: `Error: ${name}: ${problem}`, name };
}

/** Maximum number of levels of nested arguments, because templates, logs and tools traverse them by recursion. */
const DEEPEST_ARGUMENTS = 64;

/** Says what is wrong with a value that JSON can read but not write, or that is too deep for recursion; null if the value is valid. */
function noArgument(value: unknown, levels: number): string | null {
  if (typeof value === 'number' && !Number.isFinite(value)) return 'a number is too large';
  if (typeof value !== 'object' || value === null) return null;
  if (levels === 0) return `the arguments are nested more than ${DEEPEST_ARGUMENTS} deep`;
  for (const inner of Object.values(value)) {
    const problem = noArgument(inner, levels - 1);
    if (problem !== null) return problem;
  }
  return null;
}

/** Returns a call whose arguments are a text with a JSON object. */
export function checkJsonCall(name: string, text: string, tools: Tool[]): ToolCall {
  const args = parseJson(text);
  if (args !== undefined) return checkCall(name, args, tools);
  const known = tools.some((tool) => tool.name === name);
  return { error: 'Error: the tool call is not valid JSON', ...(known && { name }) };
}

/**
 * Matches a string literal of Python, and the words True, False and None, which models write instead of JSON's. A string without a closing
 * quote matches up to the end of the text, so that matching takes linear time.
 */
const PYTHON = /'((?:[^'\\]|\\.?)*)(?:'|$)|"(?:[^"\\]|\\.?)*(?:"|$)|\b(True|False|None)\b/gs;
const WORDS: Readonly<Record<string, string>> = { True: 'true', False: 'false', None: 'null' };

/** Returns the value of a Python literal that has an equivalent in JSON; undefined for any other text. */
function parsePython(text: string): unknown {
  const quoted = (inner: string) => `"${inner.replace(/\\'/g, "'").replace(/(?<!\\)"/g, '\\"')}"`;
  return parseJson(
    text.replace(PYTHON, (whole: string, inner?: string, word?: string) =>
      word === undefined ? (inner === undefined ? whole : quoted(inner)) : WORDS[word],
    ),
  );
}

/**
 * Returns the value of an argument in a format without quotes. If the schema requires a string, the value is the text. Otherwise the text
 * is read as JSON, as a string and as a Python literal, and the first value that fits the schema is returned. If none fits, returns the
 * JSON value, or the text if it is not JSON.
 */
export function typedValue(text: string, tool: string, key: string, tools: Tool[]): unknown {
  const { properties = {} } = tools.find(({ name }) => name === tool)?.parameters ?? {};
  const schema = Object.hasOwn(properties, key) ? properties[key] : undefined;
  if (schema?.type === 'string') return text;
  const json = parseJson(text);
  const readings = [json, text, parsePython(text)].filter((reading) => reading !== undefined);
  const fitting = readings.findIndex((reading) => schema && valueProblem(reading, schema) === null);
  return readings[Math.max(0, fitting)];
}

/** Parses JSON. Returns undefined for a text that is not JSON. */
export function parseJson(text: string, parse: (text: string) => unknown = JSON.parse): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

export interface TaggedBlock {
  body: string;
  /** True if the block has its closing tag; false if the text ends or the next block starts before it. */
  closed: boolean;
}

/** Returns the blocks of a text: what is between each `open` and the `close` after it. */
export function taggedBlocks(text: string, open: string, close: string): TaggedBlock[] {
  return text
    .split(open)
    .slice(1)
    .map((rest) => {
      const end = rest.indexOf(close);
      return { body: end < 0 ? rest : rest.slice(0, end), closed: end >= 0 };
    });
}

/**
 * Returns the text between `open` and the next `close`, searched from `from` on, and the position after it; undefined
 * if either is missing.
 */
export function between(
  text: string,
  open: string,
  close: string,
  from: number,
): { inner: string; end: number } | undefined {
  const at = text.indexOf(open, from);
  const end = at < 0 ? -1 : text.indexOf(close, at + open.length);
  return end < 0 ? undefined : { inner: text.slice(at + open.length, end), end: end + close.length };
}
