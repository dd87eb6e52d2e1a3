/**
 * The control tokens of a tokenizer, and how their names are kept out of texts that come from outside: "<|im_end|>" in
 * what a user or a tool wrote is data.
 */

import { InputError } from '../../errors.ts';

export interface AddedToken {
  id: number;
  content: string;
  special?: boolean;
  /** Whether the token takes the white space before or after it with it. */
  lstrip?: boolean;
  rstrip?: boolean;
}

/** Private-use characters of one text that write a control token's number where its name stood: the digits 0 and 1, and an end. */
export type Marks = readonly [zero: string, one: string, end: string];

export class ControlTokens {
  private readonly names: readonly string[];
  private readonly tokens: ReadonlyMap<string, AddedToken>;
  private readonly pattern: RegExp | null;
  private readonly ids: ReadonlySet<number>;

  /** Runs of white space that are not special (Gemma, Phi) are ordinary text that has a token of its own. */
  constructor(added: readonly AddedToken[]) {
    const control = added.filter(
      ({ content, special }) => content !== '' && (special || !/^[\s\u2581]+$/u.test(content)),
    );
    this.names = control.map(({ content }) => content);
    this.tokens = new Map(control.map((token) => [token.content, token]));
    this.pattern = anyOf(this.names);
    this.ids = new Set(control.map(({ id }) => id));
  }

  occurIn(text: string): boolean {
    return this.pattern?.test(text) ?? false;
  }

  isControl(id: number): boolean {
    return this.ids.has(id);
  }

  /** The text with each name as its number in marks; a name of one character has no other way of being broken. */
  hide(text: string, [zero, one, end]: Marks): string {
    if (!this.pattern) return text;
    return text.replace(new RegExp(this.pattern, 'gu'), (name) => {
      const digits = this.names.indexOf(name).toString(2);
      return [...digits].map((digit) => (digit === '0' ? zero : one)).join('') + end;
    });
  }

  /** What `hide` took out, back again. */
  show(text: string, [zero, one, end]: Marks): string {
    return text.replace(new RegExp(`([${zero}${one}]+)${end}`, 'gu'), (_, digits: string) => {
      const number = [...digits].reduce((sum, digit) => 2 * sum + (digit === one ? 1 : 0), 0);
      return this.names[number];
    });
  }

  /** The text cut at names of control tokens: these as their tokens, white space taken with them as the token asks. */
  split(text: string): (AddedToken | string)[] {
    if (!this.pattern) return [text];
    const parts = text.split(new RegExp(`(${this.pattern.source})`, 'u'));
    return parts.map((part, i) => {
      const token = i % 2 === 1 ? this.tokens.get(part) : undefined;
      if (token) return token;
      const after = this.tokens.get(parts[i - 1] ?? '')?.rstrip ? part.trimStart() : part;
      return this.tokens.get(parts[i + 1] ?? '')?.lstrip ? after.trimEnd() : after;
    });
  }
}

/** Three private-use characters that the text does not hold; template functions such as trim leave them alone. */
export function unusedMarks(text: string): Marks {
  const marks: string[] = [];
  for (let code = 0xe000; code < 0xf900; code++) {
    const character = String.fromCharCode(code);
    if (!text.includes(character)) marks.push(character);
    if (marks.length === 3) return marks as unknown as Marks;
  }
  throw new InputError(
    'A conversation uses all 6400 private-use characters, so none is left to mark control tokens with.',
  );
}

/** Longest name first, as the tokenizer itself prefers. */
function anyOf(names: readonly string[]): RegExp | null {
  const sorted = [...names].sort((a, b) => b.length - a.length);
  if (sorted.length === 0) return null;
  return new RegExp(sorted.map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('|'), 'u');
}
