/**
 * Trains a byte-level BPE tokenizer and writes it as a Hugging Face `tokenizer.json`. The same corpus always results in
 * the same file.
 *
 * Made for short sequences over a small vocabulary. Frequent pre-tokens become whole entries (reachable through
 * `ignore_merges`, as in Llama 3), so that a word, or all of `{"name":"calculator","arguments":{"expression":"`, costs
 * one entry and one token. Ordinary merges (Sennrich et al., arXiv:1508.07909) over the same text fill the rest of the
 * vocabulary and encode unseen words. Every digit is a separate token, which allows a small model to copy numbers.
 */

import { InputError } from '../../errors.ts';
import { byteAlphabet } from '../../model/tokenizer/vocabulary.ts';

/**
 * The pre-tokens: a digit | a word with its leading space and a newline after it ("assistant\n") | a run that starts
 * with a symbol and continues up to a space or digit (JSON boilerplate) | white space. Classes are written out, because
 * \s and \d mean different characters in Oniguruma and JavaScript.
 */
const PRE_TOKEN = '[0-9]| ?\\p{L}+\\n?| ?[^ \\t\\r\\n0-9\\p{L}][^ \\t\\r\\n0-9]*|[ \\t\\r\\n]+';

interface SpecialToken {
  content: string;
  /**
   * True if decoding with skipSpecialTokens omits the token. False for tool-call tags, because the tool parser reads
   * them.
   */
  special: boolean;
}

export interface BpeOptions {
  /** Number of all vocabulary entries: 256 bytes, special tokens, whole words, merges. */
  vocabSize: number;
  /** Maximum number of vocabulary entries that are complete pre-tokens; 0 = plain BPE. */
  maxWords: number;
  specialTokens: SpecialToken[];
}

interface Word {
  symbols: string[];
  count: number;
}

/**
 * Returns the `tokenizer.json`, to be written with JSON.stringify. Throws InputError if `vocabSize` is too small for
 * bytes and special tokens.
 */
export function trainBpe(texts: Iterable<string>, options: BpeOptions): Record<string, unknown> {
  const work = train(texts, options);
  for (;;) {
    const { done, value } = work.next();
    if (done) return value;
  }
}

/** Like `trainBpe`, but yields to other tasks after `busyMs` milliseconds of work, so that a page stays responsive. */
export async function trainBpeInPieces(
  texts: Iterable<string>,
  options: BpeOptions,
  busyMs = 10,
): Promise<Record<string, unknown>> {
  const work = train(texts, options);
  for (let since = performance.now(); ;) {
    const { done, value } = work.next();
    if (done) return value;
    if (performance.now() - since < busyMs) continue;
    await new Promise((resolve) => setTimeout(resolve));
    since = performance.now();
  }
}

/** Yields after each text and each merge. */
function* train(texts: Iterable<string>, options: BpeOptions): Generator<void, Record<string, unknown>> {
  const alphabet = byteAlphabet();
  const room = options.vocabSize - options.specialTokens.length - alphabet.length;
  if (room < 0) {
    throw new InputError(
      `A byte-level vocabulary of ${options.vocabSize} is too small: 256 bytes and ${options.specialTokens.length} ` +
        `special tokens need ${options.vocabSize - room}.`,
    );
  }
  const counts = yield* countPreTokens(texts, alphabet, options.specialTokens);
  const whole = mostUseful(counts, Math.min(options.maxWords, room));
  const known = new Set([...alphabet, ...whole]);
  const merges = yield* learnMerges([...counts], known, options.vocabSize - options.specialTokens.length);
  const specials = options.specialTokens.map(({ content }) => content);
  return tokenizerJson([...specials, ...known], merges, options.specialTokens);
}

/** Counts pre-tokens, written in byte characters. Special tokens are split off first, as the tokenizer will do. */
function* countPreTokens(
  texts: Iterable<string>,
  alphabet: string[],
  specials: SpecialToken[],
): Generator<void, Map<string, number>> {
  const cut = new RegExp(specials.map(({ content }) => content.replace(/[^\w]/g, '\\$&')).join('|') || '$^');
  const pattern = new RegExp(PRE_TOKEN, 'gu');
  const encoder = new TextEncoder();
  const counts = new Map<string, number>();
  for (const text of texts) {
    for (const [preToken] of text.split(cut).flatMap((part) => [...part.matchAll(pattern)])) {
      const bytes = Array.from(encoder.encode(preToken), (byte) => alphabet[byte]).join('');
      counts.set(bytes, (counts.get(bytes) ?? 0) + 1);
    }
    yield;
  }
  return counts;
}

/**
 * Returns the pre-tokens that occur at least twice and save most tokens as single vocabulary entries; ties in
 * code-point order.
 */
function mostUseful(counts: Map<string, number>, limit: number): string[] {
  const saving = ([token, count]: [string, number]) => count * ([...token].length - 1);
  return [...counts]
    .filter(([token, count]) => count > 1 && [...token].length > 1)
    .sort((a, b) => saving(b) - saving(a) || compare(a[0], b[0]))
    .slice(0, limit)
    .map(([token]) => token);
}

/** Adds one vocabulary entry per merge to `known`, until `known` has `limit` entries or no pair occurs twice. */
function* learnMerges(
  counts: [string, number][],
  known: Set<string>,
  limit: number,
): Generator<void, [string, string][]> {
  const words: Word[] = counts.map(([token, count]) => ({ symbols: [...token], count }));
  const merges: [string, string][] = [];
  while (known.size < limit) {
    const pair = mostFrequentPair(words);
    if (!pair) break;
    merges.push(pair);
    known.add(pair[0] + pair[1]);
    for (const word of words) mergePair(word, pair);
    yield;
  }
  return merges;
}

function mostFrequentPair(words: Word[]): [string, string] | null {
  const counts = new Map<string, number>();
  for (const { symbols, count } of words) {
    for (let i = 1; i < symbols.length; i++) {
      // A byte character is never a space, so a space can separate the two symbols of a pair.
      const pair = `${symbols[i - 1]} ${symbols[i]}`;
      counts.set(pair, (counts.get(pair) ?? 0) + count);
    }
  }
  let best: string | null = null;
  let bestCount = 1;
  for (const [pair, count] of counts) {
    if (count > bestCount || (count === bestCount && best !== null && compare(pair, best) < 0)) {
      [best, bestCount] = [pair, count];
    }
  }
  return best === null ? null : (best.split(' ') as [string, string]);
}

function mergePair(word: Word, [left, right]: [string, string]): void {
  const { symbols } = word;
  for (let i = 0; i + 1 < symbols.length; i++) {
    if (symbols[i] === left && symbols[i + 1] === right) symbols.splice(i, 2, left + right);
  }
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function tokenizerJson(vocab: string[], merges: [string, string][], specials: SpecialToken[]): Record<string, unknown> {
  return {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: specials.map(({ content, special }, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: PRE_TOKEN }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: true,
      vocab: Object.fromEntries(vocab.map((token, id) => [token, id])),
      merges: merges.map((pair) => pair.join(' ')),
    },
  };
}
