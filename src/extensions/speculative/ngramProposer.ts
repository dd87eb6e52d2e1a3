/**
 * Proposes draft tokens for speculative decoding by n-gram lookup, like vLLM's ngram proposer. It returns the tokens
 * that followed when the sample's last tokens occurred before: in its prompt, in the sample itself, or in another
 * sample of the same prompt, from this or an earlier training step. Runs on the host only.
 */

import type { SpeculativeOptions } from '../../rollout/server/tokenSource.ts';

/** Maximum number of prompts whose samples are stored; the least recently used one is dropped first. */
const MAX_PROMPTS = 4096;
/** Places compared for one guess, latest first, and tokens compared at each. */
const MAX_PLACES = 16;
const MAX_MATCH = 32;
/**
 * Number of guesses that a sample starts with. It gets two more after a pass in which all were right; otherwise the
 * next number is the number of right guesses.
 */
const FIRST_DRAFT = 4;

/** Finds the places of one prompt's tokens by the n tokens before them. */
class NgramIndex {
  readonly #n: number;
  readonly #places = new Map<string, { ids: number[]; at: number }[]>();

  constructor(n: number) {
    this.#n = n;
  }

  /** Appends a token to a sequence of this index, as the continuation of the tokens before it. */
  push(ids: number[], token: number): void {
    const place = { ids, at: ids.length };
    ids.push(token);
    if (place.at < this.#n) return;
    const key = ids.slice(-this.#n - 1, -1).join();
    const places = this.#places.get(key);
    if (!places) this.#places.set(key, [place]);
    else if (places.push(place) > 2 * MAX_PLACES) places.splice(0, MAX_PLACES);
  }

  /** Returns at most `most` tokens that followed the longest earlier match of the sequence's end. */
  after(ids: number[], most: number): number[] {
    const places = this.#places.get(ids.slice(-this.#n).join()) ?? [];
    let [best, bestLength]: [number[], number] = [[], 0];
    for (const place of places.slice(-MAX_PLACES).reverse()) {
      const next = place.ids.slice(place.at, place.at + most);
      const length = commonEnd(ids, place);
      if (length > bestLength || (length === bestLength && next.length > best.length))
        [best, bestLength] = [next, length];
    }
    return best;
  }
}

/** Number of equal tokens before the end of `ids` and before the place, at most MAX_MATCH. */
function commonEnd(ids: number[], place: { ids: number[]; at: number }): number {
  let n = 0;
  while (n < MAX_MATCH && n < place.at && n < ids.length && place.ids[place.at - 1 - n] === ids[ids.length - 1 - n])
    n++;
  return n;
}

interface Prompt {
  key: string;
  tokens: Uint32Array;
  /** Exists while a sample is open. */
  index: NgramIndex | undefined;
  open: number;
  /** Finished samples: the prompt's last tokens and the sample's own. */
  finished: Uint32Array[];
}

interface OpenSample {
  prompt: Prompt;
  /** The prompt's last tokens, then the sample's own. */
  ids: number[];
  /** Number of ids that belong to the prompt. */
  head: number;
  length: number;
}

/** Owns the token histories of prompts, and proposes drafts from them. */
export class NgramProposer {
  readonly #options: SpeculativeOptions;
  /** Prompts by use, latest last. */
  readonly #prompts = new Map<string, Prompt>();
  readonly #samples = new Map<string, OpenSample>();

  constructor(options: SpeculativeOptions) {
    this.#options = options;
  }

  /** Starts a turn: adds the tokens after the prompt that are new since the last turn. */
  open(id: string, prompt: Uint32Array, own: Uint32Array): void {
    const sample = this.#samples.get(id) ?? this.#newSample(prompt);
    this.#samples.set(id, sample);
    this.push(id, own.subarray(sample.ids.length - sample.head));
  }

  /** Adds tokens that the sample has generated. */
  push(id: string, tokenIds: Iterable<number>): void {
    const { prompt, ids } = this.#samples.get(id)!;
    for (const token of tokenIds) prompt.index!.push(ids, token);
  }

  /** Returns at most `most` guesses for the sample's next tokens. */
  propose(id: string, most: number): number[] {
    const sample = this.#samples.get(id);
    if (!sample || most < 1) return [];
    return sample.prompt.index!.after(sample.ids, Math.min(most, sample.length));
  }

  /** Records that `accepted` of `guessed` tokens were right. */
  learn(id: string, guessed: number, accepted: number): void {
    const sample = this.#samples.get(id);
    if (!sample) return;
    const length = accepted === guessed ? Math.max(sample.length, guessed + 2) : accepted;
    sample.length = Math.max(1, Math.min(length, this.#options.maxDraftTokens));
  }

  /** Ends a sample and stores it with its prompt. */
  close(id: string): void {
    const sample = this.#samples.get(id);
    if (!sample) return;
    const { prompt, ids } = sample;
    this.#samples.delete(id);
    prompt.finished.push(Uint32Array.from(ids));
    if (prompt.finished.length > this.#options.history) prompt.finished.shift();
    if (--prompt.open === 0) prompt.index = undefined;
  }

  #newSample(tokens: Uint32Array): OpenSample {
    const prompt = this.#promptOf(tokens);
    prompt.open++;
    const head = Math.min(this.#options.minNgram, tokens.length);
    const length = Math.min(FIRST_DRAFT, this.#options.maxDraftTokens);
    return { prompt, ids: [...tokens.subarray(tokens.length - head)], head, length };
  }

  #promptOf(tokens: Uint32Array): Prompt {
    const key = tokens.join();
    const prompt = this.#prompts.get(key) ?? { key, tokens, index: undefined, open: 0, finished: [] };
    this.#prompts.delete(key);
    this.#prompts.set(key, prompt);
    prompt.index ??= indexOf([tokens, ...prompt.finished], this.#options.minNgram);
    if (this.#prompts.size > MAX_PROMPTS) this.#forget();
    return prompt;
  }

  #forget(): void {
    for (const { key, open } of this.#prompts.values()) {
      if (open > 0) continue;
      this.#prompts.delete(key);
      return;
    }
  }
}

function indexOf(sequences: Uint32Array[], n: number): NgramIndex {
  const index = new NgramIndex(n);
  for (const sequence of sequences) {
    const ids: number[] = [];
    for (const token of sequence) index.push(ids, token);
  }
  return index;
}
