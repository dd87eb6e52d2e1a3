/**
 * Stop strings, matched byte by byte over tokens: a string may lie within a token, span several, or end inside one, and a
 * character may be cut between two. One matcher a turn; preemption does not touch it.
 */

import { tokenBytes, type Vocabulary } from '../../model/tokenizer/vocabulary.ts';

/** At most; more would be a sign of something else. */
export const MAX_STOP_STRINGS = 16;

/** Throws RangeError on strings that cannot be looked for. */
export function checkStopStrings(stop: readonly string[]): void {
  if (stop.length > MAX_STOP_STRINGS)
    throw new RangeError(`${stop.length} stop strings were given. At most ${MAX_STOP_STRINGS} are allowed.`);
  if (stop.includes(''))
    throw new RangeError('A stop string is empty, and would end every turn at once. Leave it out.');
}

export class StopMatcher {
  readonly #vocabulary: Vocabulary;
  readonly #patterns: { text: string; bytes: Uint8Array; fallback: Uint32Array }[];
  /** Bytes of each pattern that the text ends with. */
  readonly #matched: number[];
  #tokensBefore: number;

  /** @param minNewTokens a string that is complete before so many tokens does not count, as in vLLM */
  constructor(stop: readonly string[], vocabulary: Vocabulary, minNewTokens = 0) {
    const encoder = new TextEncoder();
    this.#vocabulary = vocabulary;
    this.#patterns = stop.map((text) => {
      const bytes = encoder.encode(text);
      return { text, bytes, fallback: prefixFunction(bytes) };
    });
    this.#matched = stop.map(() => 0);
    this.#tokensBefore = minNewTokens;
  }

  /** Takes the next token; returns the string that it completes, the one whose end comes first, if any. */
  feed(token: number): string | undefined {
    this.#tokensBefore--;
    let found: string | undefined;
    for (const byte of tokenBytes(this.#vocabulary, token)) {
      const complete = this.#step(byte);
      found ??= complete;
    }
    return this.#tokensBefore > 0 ? undefined : found;
  }

  /** Every pattern sees every byte, also after a match: the next token continues from there where this one does not count. */
  #step(byte: number): string | undefined {
    let found: string | undefined;
    this.#patterns.forEach(({ text, bytes, fallback }, p) => {
      const n = advance(bytes, fallback, this.#matched[p], byte);
      this.#matched[p] = n === bytes.length ? fallback[n - 1] : n;
      if (n === bytes.length) found ??= text;
    });
    return found;
  }
}

/** Length of the longest prefix of `bytes` that ends the text once `byte` follows `matched` of them (Knuth-Morris-Pratt). */
export function advance(bytes: Uint8Array, fallback: Uint32Array, matched: number, byte: number): number {
  let n = matched;
  while (n > 0 && bytes[n] !== byte) n = fallback[n - 1];
  return bytes[n] === byte ? n + 1 : 0;
}

/** [n] for each prefix, the length of its longest proper suffix that is a prefix too. */
export function prefixFunction(bytes: Uint8Array): Uint32Array {
  const fallback = new Uint32Array(bytes.length);
  for (let i = 1; i < bytes.length; i++) fallback[i] = advance(bytes, fallback, fallback[i - 1], bytes[i]);
  return fallback;
}

/**
 * The text of a turn without what follows its stop string, and without the string itself unless `include`.
 *
 * @param before the text without the turn's last token, which completed the string
 */
export function cutAtStop(text: string, before: string, stop: string, include: boolean): string {
  // A character that `before` cuts decodes to replacement characters there.
  const whole = before.replace(/\ufffd+$/, '').length;
  const at = text.indexOf(stop, Math.max(0, whole - stop.length + 1));
  return at < 0 ? text : text.slice(0, at + (include ? stop.length : 0));
}

/** Characters at the end of a text that a stop string may begin with. */
export function heldBack(text: string, stop: readonly string[]): number {
  const ofOne = (string: string) => {
    for (let n = Math.min(string.length, text.length); n > 0; n--) if (text.endsWith(string.slice(0, n))) return n;
    return 0;
  };
  return Math.max(0, ...stop.map(ofOne));
}
