/**
 * Proposes guesses for speculative decoding by n-gram lookup, like vLLM's ngram proposer. If the sample's last tokens have occurred before,
 * it proposes the tokens that followed there: in the prompt, in the sample itself, or in another sample of the same prompt, from this or an
 * earlier training step. Runs on the host only.
 */

import type { SpeculativeOptions } from '../../rollout/server/tokenSource.ts';

/** Maximum number of prompts whose samples are stored; the least recently used one is dropped first. */
const MAX_PROMPTS = 4096;
/** Maximum number of earlier places that are compared for one guess, latest first, and of tokens compared at each place. */
const MAX_PLACES = 16;
const MAX_MATCH = 32;
/**
 * Number of guesses at the start of a sample. After a pass in which all guesses were right, the number grows by two. Otherwise it becomes
 * the number of right guesses.
 */
const FIRST_DRAFT = 4;

/** Finds the places in one prompt's token histories that follow the same n tokens. */
class NgramIndex {
  readonly #n: number;
  readonly #places = new Map<string, { ids: number[]; at: number }[]>();

  constructor(n: number) {
    this.#n = n;
  }

  /** Adds a token of a history to the index, as the continuation of the tokens before it. */
  push(ids: number[], token: number): void {
    const place = { ids, at: ids.length };
    ids.push(token);
    if (place.at < this.#n) return;
    const key = ids.slice(-this.#n - 1, -1).join();
    const places = this.#places.get(key);
    if (!places) this.#places.set(key, [place]);
    else if (places.push(place) > 2 * MAX_PLACES) places.splice(0, MAX_PLACES);
  }

  /** Returns at most `most` tokens that followed the longest earlier match with the end of the history. */
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

/** Returns how many of the tokens just before the place equal the last tokens of `ids`, at most MAX_MATCH. */
function commonEnd(ids: number[], place: { ids: number[]; at: number }): number {
  let n = 0;
  while (n < MAX_MATCH && n < place.at && n < ids.length && place.ids[place.at - 1 - n] === ids[ids.length - 1 - n])
    n++;
  return n;
}

interface Prompt {
  key: string;
  tokens: Uint32Array;
  /** Index of the prompt's token histories. Exists while a sample of the prompt is in flight. */
  index: NgramIndex | undefined;
  open: number;
  /** Token histories of finished samples: the last tokens of the prompt, then those of the sample. */
  finished: Uint32Array[];
}

interface OpenSample {
  prompt: Prompt;
  /** Token history of the sample: the last tokens of the prompt, then its own. */
  ids: number[];
  /** Number of `ids` that belong to the prompt. */
  head: number;
  length: number;
}

/** Owns the token histories of prompts, and proposes guesses from them. */
export class NgramProposer {
  readonly #options: SpeculativeOptions;
  /** Prompts in order of use, the most recently used one last. */
  readonly #prompts = new Map<string, Prompt>();
  readonly #samples = new Map<string, OpenSample>();

  constructor(options: SpeculativeOptions) {
    this.#options = options;
  }

  /** Starts a turn: adds those tokens after the prompt that are new since the last turn. */
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

  /** Records that `accepted` of `guessed` guessed tokens were right. */
  learn(id: string, guessed: number, accepted: number): void {
    const sample = this.#samples.get(id);
    if (!sample) return;
    const length = accepted === guessed ? Math.max(sample.length, guessed + 2) : accepted;
    sample.length = Math.max(1, Math.min(length, this.#options.maxDraftTokens));
  }

  /** Ends a sample, and stores its history with its prompt. */
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
