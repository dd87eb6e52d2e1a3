/**
 * Control tokens of a tokenizer. Keeps their names out of untrusted texts: "<|im_end|>" in the text of a user or tool
 * is data.
 */

import { InputError } from '../../errors.ts';

export interface AddedToken {
  id: number;
  content: string;
  special?: boolean;
  /** True if the token is searched for in the normalized text. Default: the opposite of `special`. */
  normalized?: boolean;
  /** True if the token includes the white space before or after its name in the text. */
  lstrip?: boolean;
  rstrip?: boolean;
}

/** Tags of tool calls that parsers and grammars read as text. */
const CALL_TAGS = ['tool_call', 'arg_key', 'arg_value'].flatMap((name) => [`<${name}>`, `</${name}>`]);

/**
 * Returns the tokens without the flag `special` on the tags of tool calls, which some models have. Decoding that skips special tokens would
 * lose the calls.
 */
export const withReadableTags = (added: readonly AddedToken[]): AddedToken[] =>
  added.map((token) => {
    if (!token.special || !CALL_TAGS.includes(token.content)) return token;
    return { ...token, special: false, normalized: token.normalized ?? false };
  });

/** Returns tokenizer_config.json without the tags of tool calls in its list of special tokens. */
export function withReadableConfig(config: Record<string, unknown>): Record<string, unknown> {
  const special = config['additional_special_tokens'];
  if (!Array.isArray(special)) return config;
  const kept = special.filter((name: unknown) => !CALL_TAGS.includes(name as string));
  return { ...config, additional_special_tokens: kept };
}

/** The control tokens of a tokenizer, by name. */
export class ControlTokens {
  private readonly tokens: ReadonlyMap<string, AddedToken>;
  private readonly pattern: RegExp | null;
  /** Matches the names of control tokens in upper and lower case, because a template can change the case of a text. */
  private readonly hostile: RegExp | null;
  /** All names in one text, each between two separators. */
  private readonly all: string;
  private readonly longest: number;
  private readonly ids: ReadonlySet<number>;

  /** Added tokens that are runs of white space and not special (Gemma, Phi) are ordinary text, not control tokens. */
  constructor(added: readonly AddedToken[]) {
    const control = added.filter(
      ({ content, special }) => content !== '' && (special || !/^[\s\u2581]+$/u.test(content)),
    );
    const names = control.map(({ content }) => content);
    this.tokens = new Map(control.map((token) => [token.content, token]));
    this.pattern = anyOf(names, 'u');
    this.hostile = anyOf(names, 'giu');
    this.longest = Math.max(0, ...names.map((name) => name.length));
    this.all = SEPARATOR + names.join(SEPARATOR) + SEPARATOR;
    this.ids = new Set(control.map(({ id }) => id));
  }

  occurIn(text: string): boolean {
    return text.search(this.hostile ?? NEVER) >= 0;
  }

  /**
   * True if an end of the text could form a control token's name together with the text next to it (the template's or
   * another message's).
   */
  touch(text: string): boolean {
    return this.edges(text).length > 0;
  }

  isControl(id: number): boolean {
    return this.ids.has(id);
  }

  /** Hides each control token's name in the text. */
  hideNames(text: string, hidden: HiddenTexts): string {
    return this.hostile ? text.replace(this.hostile, (name) => hidden.hide(name)) : text;
  }

  /** Hides each control token's name in the text, and each part of a name at the text's ends. */
  hide(text: string, hidden: HiddenTexts): string {
    const inside = this.hideNames(text, hidden);
    return this.edges(inside).reduceRight(
      (kept, [from, to]) => kept.slice(0, from) + hidden.hide(kept.slice(from, to)) + kept.slice(to),
      inside,
    );
  }

  /** Returns the names of control tokens in a text, in order. */
  namesIn(text: string): string[] {
    return this.split(text).flatMap((part) => (typeof part === 'string' ? [] : [part.content]));
  }

  /**
   * Splits a text at names of control tokens, which are returned as tokens together with the white space that each
   * token includes.
   */
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

  /**
   * Returns the ranges at the two ends of a text that could be part of a control token's name (its end at the start of
   * the text, or its start at the end), ignoring white space.
   */
  private edges(text: string): [from: number, to: number][] {
    const from = text.length - text.trimStart().length;
    const to = text.trimEnd().length;
    if (from < to && to - from < this.longest && this.all.includes(text.slice(from, to))) return [[from, to]];
    const longest = (part: (length: number) => string) => {
      let length = Math.min(this.longest, to - from);
      while (length > 0 && !this.all.includes(part(length))) length--;
      return length;
    };
    const head = longest((length) => text.slice(from, from + length) + SEPARATOR);
    const tail = Math.min(
      longest((length) => SEPARATOR + text.slice(to - length, to)),
      to - from - head,
    );
    const edges: [number, number][] = [
      [from, from + head],
      [to - tail, to],
    ];
    return edges.filter(([begin, end]) => end > begin);
  }
}

/** A character that no control token's name contains. */
const SEPARATOR = '\u0000';
/** Matches nothing. */
const NEVER = /(?!)/;

/** Private-use characters in which the number of a hidden text is written: the digits 0 and 1, and an end mark. */
type Marks = readonly [zero: string, one: string, end: string];

/**
 * Texts that were taken out of a conversation before it is rendered. A number replaces each of them, written in
 * characters that template functions such as trim do not change.
 */
export class HiddenTexts {
  private readonly marks: Marks;
  private readonly numbers = new Map<string, number>();
  private readonly texts: string[] = [];

  /**
   * @param around all text next to which a number can be written. Throws InputError if it contains every private-use
   * character.
   */
  constructor(around: string) {
    this.marks = unusedMarks(around);
  }

  hide(text: string): string {
    let number = this.numbers.get(text);
    if (number === undefined) {
      this.numbers.set(text, (number = this.texts.length));
      this.texts.push(text);
    }
    const [zero, one, end] = this.marks;
    return [...number.toString(2)].map((digit) => (digit === '0' ? zero : one)).join('') + end;
  }

  /** Puts the hidden texts back in place of their numbers. */
  show(text: string): string {
    const [zero, one, end] = this.marks;
    return text.replace(new RegExp(`([${zero}${one}]+)${end}`, 'gu'), (whole, digits: string) => {
      const number = [...digits].reduce((sum, digit) => 2 * sum + (digit === one ? 1 : 0), 0);
      return this.texts[number] ?? whole;
    });
  }
}

function unusedMarks(text: string): Marks {
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

/** Sorts the longest name first, because the tokenizer itself prefers the longest match. */
function anyOf(names: readonly string[], flags: string): RegExp | null {
  const sorted = [...names].sort((a, b) => b.length - a.length);
  if (sorted.length === 0) return null;
  return new RegExp(sorted.map((name) => name.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('|'), flags);
}

/**
 * Removes control tokens from a tokenizer.json, so that no text is encoded as one: neither as a complete entry
 * (ignore_merges) nor as a piece of a Unigram vocabulary.
 */
export function withoutAddedTokens(
  json: Record<string, unknown>,
  control: readonly AddedToken[],
): Record<string, unknown> {
  const plain = structuredClone(json);
  const vocab = (plain['model'] as Record<string, unknown>)['vocab'];
  plain['added_tokens'] = [];
  plain['post_processor'] = null;
  const names = new Set(control.map(({ content }) => content));
  if (Array.isArray(vocab)) {
    // In a Unigram vocabulary the index of a piece is its id, so the list must keep its length. The piece of a control token is renamed to
    // a text that cannot occur. `crypto.randomUUID` is missing on pages that were loaded over plain http.
    for (const piece of vocab as [string, number][])
      if (names.has(piece[0])) piece[0] = crypto.getRandomValues(new Uint32Array(4)).join('-');
  } else if (vocab) {
    for (const name of names) delete (vocab as Record<string, unknown>)[name];
  }
  return plain;
}

/** Returns a copy of a JSON value in which `change` has been applied to each text, and `changeKey` to each key. */
export function inTexts<T>(value: T, change: (text: string) => string, changeKey: (key: string) => string): T {
  if (typeof value === 'string') return change(value) as T;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map((item: unknown) => inTexts(item, change, changeKey)) as T;
  const entries = Object.entries(value).map(([key, item]): [string, unknown] => [
    changeKey(key),
    inTexts<unknown>(item, change, changeKey),
  ]);
  return Object.fromEntries(entries) as T;
}
