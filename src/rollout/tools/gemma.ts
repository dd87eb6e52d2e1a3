/**
 * Tool calls of FunctionGemma and Gemma 4: `call:NAME{key:value,...}` between two control tokens, with special quotes
 * around texts.
 */

import { checkCall, parseJson, taggedBlocks, type ToolCall, type ToolParser } from './call.ts';
import type { Tool } from '../../tasks/tool.ts';

interface Marks {
  open: string;
  close: string;
  /** Token that stands before and after a text, instead of a quote. */
  quote: string;
}

/**
 * Maximum number of levels of nested arguments. Calls with deeper values are refused, because recursion over them could overflow the stack.
 */
const MAX_DEPTH = 32;

/** `<start_function_call>call:NAME{key:<escape>text<escape>,n:2}<end_function_call>` */
export const parseFunctionGemma: ToolParser = parserOf({
  open: '<start_function_call>',
  close: '<end_function_call>',
  quote: '<escape>',
});
parseFunctionGemma.stopToken = '<start_function_response>';

/** `<|tool_call>call:NAME{key:<|"|>text<|"|>,n:2}<tool_call|>` */
export const parseGemma4: ToolParser = parserOf({ open: '<|tool_call>', close: '<tool_call|>', quote: '<|"|>' });
parseGemma4.stopToken = '<|tool_response>';

function parserOf(marks: Marks): ToolParser {
  const { open, close } = marks;
  return (text, tools) =>
    taggedBlocks(text, open, close).map(({ body, closed }) =>
      closed ? readCall(body, marks, tools) : { error: `Error: ${open} without ${close}` },
    );
}

function readCall(body: string, { quote }: Marks, tools: Tool[]): ToolCall {
  const name = /^\s*call:([\w.-]+)\{/.exec(body);
  const reader = new ValueReader(body, quote, name ? name[0].length - 1 : 0);
  const args = name ? reader.value(0) : undefined;
  if (name && args !== undefined && reader.isAtEnd()) return checkCall(name[1], args, tools);
  return { error: 'Error: the tool call is not of the form call:name{key:value}' };
}

/** Reads a value from left to right, each character once. Its result is undefined if the text is not a value. */
class ValueReader {
  readonly #text: string;
  readonly #quote: string;
  #at: number;

  constructor(text: string, quote: string, at: number) {
    this.#text = text;
    this.#quote = quote;
    this.#at = at;
  }

  isAtEnd(): boolean {
    return this.#text.slice(this.#at).trim() === '';
  }

  value(depth: number): unknown {
    if (depth > MAX_DEPTH) return undefined;
    if (this.#text.startsWith(this.#quote, this.#at)) return this.#quoted();
    if (this.#take('{')) return this.#object(depth);
    if (this.#take('[')) return this.#array(depth);
    const bare = this.#until(/[,}\]]/g)?.trim();
    if (bare === undefined || bare === '') return undefined;
    const value = parseJson(bare);
    return value === undefined ? bare : value;
  }

  #object(depth: number): Record<string, unknown> | undefined {
    const entries: [string, unknown][] = [];
    while (!this.#take('}')) {
      if (entries.length > 0 && !this.#take(',')) return undefined;
      const key = this.#text.startsWith(this.#quote, this.#at) ? this.#quoted() : this.#until(/[:,}]/g)?.trim();
      const value = key !== undefined && this.#take(':') ? this.value(depth + 1) : undefined;
      if (key === undefined || value === undefined) return undefined;
      entries.push([key, value]);
    }
    return Object.fromEntries(entries);
  }

  #array(depth: number): unknown[] | undefined {
    const values: unknown[] = [];
    while (!this.#take(']')) {
      if (values.length > 0 && !this.#take(',')) return undefined;
      const value = this.value(depth + 1);
      if (value === undefined) return undefined;
      values.push(value);
    }
    return values;
  }

  #quoted(): string | undefined {
    const start = this.#at + this.#quote.length;
    const end = this.#text.indexOf(this.#quote, start);
    if (end < 0) return undefined;
    this.#at = end + this.#quote.length;
    return this.#text.slice(start, end);
  }

  /** Returns the text up to the next match, and leaves the match unread. Undefined without a match. */
  #until(end: RegExp): string | undefined {
    const start = this.#at;
    end.lastIndex = start;
    const found = end.exec(this.#text);
    if (!found) return undefined;
    this.#at = found.index;
    return this.#text.slice(start, found.index);
  }

  #take(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }
}
