/**
 * Matches stop strings byte by byte over a turn's tokens. A stop string can be inside a token, span several, or end inside one, and a
 * character can be split between two tokens. Each turn has one matcher, which continues after a preemption.
 */

import { tokenBytes, type Vocabulary } from '../../model/tokenizer/vocabulary.ts';

/** Maximum number of stop strings of a request. */
export const MAX_STOP_STRINGS = 16;

/** Throws RangeError for stop strings that are empty or too many. */
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
  /** For each pattern, the number of its first bytes that the text so far ends with. */
  readonly #matched: number[];
  #tokensBefore: number;

  /** @param minNewTokens a stop string that is completed before this number of tokens is ignored, as in vLLM */
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
   * Adds the next token. Returns the stop string that the token completes, the first one if there are several; undefined if the token
   * completes none.
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

  /** Feeds a byte to every pattern, even after a match. A match that does not count (minNewTokens) does not end the search. */
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
 * Returns the length of the longest prefix of `bytes` that the text ends with after `byte`. Before, `matched` bytes matched
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
 * Returns the text of a turn up to its stop string. Includes the stop string only if `include` is true.
 *
 * @param before text of the turn without its last token, which completed the stop string
 */
export function cutAtStop(text: string, before: string, stop: string, include: boolean): string {
  // A character that is incomplete in `before` is decoded to replacement characters at its end.
  const whole = before.replace(/\ufffd+$/, '').length;
  const at = text.indexOf(stop, Math.max(0, whole - stop.length + 1));
  return at < 0 ? text : text.slice(0, at + (include ? stop.length : 0));
}

/** Returns the number of characters at the end of a text that can be the start of a stop string. */
export function heldBack(text: string, stop: readonly string[]): number {
  const ofOne = (string: string) => {
    for (let n = Math.min(string.length, text.length); n > 0; n--) if (text.endsWith(string.slice(0, n))) return n;
    return 0;
  };
  return Math.max(0, ...stop.map(ofOne));
}
