/**
 * Stop strings, matched byte by byte over tokens. A string can be inside a token, span several, or end inside one, and
 * a character can be split between two. One matcher per turn; it continues after a preemption.
 */

import { tokenBytes, type Vocabulary } from '../../model/tokenizer/vocabulary.ts';

/** Maximum number of stop strings of a request. */
export const MAX_STOP_STRINGS = 16;

/** Throws RangeError for strings that cannot be matched. */
export function checkStopStrings(stop: readonly string[]): void {
  if (stop.length > MAX_STOP_STRINGS)
    throw new RangeError(`${stop.length} stop strings were given. At most ${MAX_STOP_STRINGS} are allowed.`);
  if (stop.includes(''))
    throw new RangeError('A stop string is empty, and would end every turn at once. Leave it out.');
}

/** Finds the stop strings of one turn. */
export class StopMatcher {
  readonly #vocabulary: Vocabulary;
  readonly #patterns: { text: string; bytes: Uint8Array; fallback: Uint32Array }[];
  /** Number of bytes of each pattern at the end of the text so far. */
  readonly #matched: number[];
  #tokensBefore: number;

  /** @param minNewTokens a string that completes before this number of tokens is ignored, as in vLLM */
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

  /**
   * Adds the next token. Returns the string that it completes, the one that ends first; undefined if it completes none.
   */
  feed(token: number): string | undefined {
    this.#tokensBefore--;
    let found: string | undefined;
    for (const byte of tokenBytes(this.#vocabulary, token)) {
      const complete = this.#step(byte);
      found ??= complete;
    }
    return this.#tokensBefore > 0 ? undefined : found;
  }

  /**
   * Feeds a byte to every pattern, even after a match: if the match does not count, the next token continues from here.
   */
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

/**
 * Length of the longest prefix of `bytes` at the end of the text, after `byte` follows `matched` matching bytes
 * (Knuth-Morris-Pratt).
 */
export function advance(bytes: Uint8Array, fallback: Uint32Array, matched: number, byte: number): number {
  let n = matched;
  while (n > 0 && bytes[n] !== byte) n = fallback[n - 1];
  return bytes[n] === byte ? n + 1 : 0;
}

/** [n] for each prefix, the length of its longest proper suffix that is also a prefix. */
export function prefixFunction(bytes: Uint8Array): Uint32Array {
  const fallback = new Uint32Array(bytes.length);
  for (let i = 1; i < bytes.length; i++) fallback[i] = advance(bytes, fallback, fallback[i - 1], bytes[i]);
  return fallback;
}

/**
 * Returns the text of a turn up to its stop string, and including the string only with `include`.
 *
 * @param before text without the turn's last token, which completed the string
 */
export function cutAtStop(text: string, before: string, stop: string, include: boolean): string {
  // A character that is incomplete in `before` decodes to replacement characters there.
  const whole = before.replace(/\ufffd+$/, '').length;
  const at = text.indexOf(stop, Math.max(0, whole - stop.length + 1));
  return at < 0 ? text : text.slice(0, at + (include ? stop.length : 0));
}

/** Number of characters at the end of a text that can be the start of a stop string. */
export function heldBack(text: string, stop: readonly string[]): number {
  const ofOne = (string: string) => {
    for (let n = Math.min(string.length, text.length); n > 0; n--) if (text.endsWith(string.slice(0, n))) return n;
    return 0;
  };
  return Math.max(0, ...stop.map(ofOne));
}
