/**
 * Proposes draft tokens for speculative decoding by n-gram lookup, as vLLM's ngram proposer: the tokens that followed when the
 * sample's last tokens occurred before, in its prompt, in itself, or in another sample of the same prompt, of this training
 * step or an earlier one. Host side only, no GPU.
 */

export interface SpeculativeOptions {
  /** Tokens guessed at once, at most. */
  maxDraftTokens: number;
  /** Number of last tokens that must have occurred before. */
  minNgram: number;
  /** Finished samples remembered for each prompt. */
  history: number;
  /** Guess only while a token takes less time with guesses than without. */
  adapt: boolean;
}

/** Prompts whose samples are remembered; the one used longest ago goes first. */
const MAX_PROMPTS = 4096;
/** Places compared for one guess, latest first, and tokens compared at each. */
const MAX_PLACES = 16;
const MAX_MATCH = 32;
/** Guesses a sample starts with; it gets two more after a pass that took them all, as many as were right otherwise. */
const FIRST_DRAFT = 4;

/** Finds the places of one prompt's tokens by the n tokens before them. */
class NgramIndex {
  readonly #n: number;
  readonly #places = new Map<string, { ids: number[]; at: number }[]>();

  constructor(n: number) {
    this.#n = n;
  }

  /** Appends a token to a sequence of this index: it is what followed the tokens before it. */
  push(ids: number[], token: number): void {
    const place = { ids, at: ids.length };
    ids.push(token);
    if (place.at < this.#n) return;
    const key = ids.slice(-this.#n - 1, -1).join();
    const places = this.#places.get(key);
    if (!places) this.#places.set(key, [place]);
    else if (places.push(place) > 2 * MAX_PLACES) places.splice(0, MAX_PLACES);
  }

  /** The tokens that followed the longest earlier match of the sequence's end, at most `most`. */
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

/** Tokens that `ids` and the place have in common before their ends, at most MAX_MATCH. */
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
  /** How many of ids are the prompt's. */
  head: number;
  length: number;
}

export class NgramProposer {
  readonly #options: SpeculativeOptions;
  /** By use, latest last. */
  readonly #prompts = new Map<string, Prompt>();
  readonly #samples = new Map<string, OpenSample>();

  constructor(options: SpeculativeOptions) {
    this.#options = options;
  }

  /** Begins a turn: takes the tokens after the prompt that are new since the last turn. */
  open(id: string, prompt: Uint32Array, own: Uint32Array): void {
    const sample = this.#samples.get(id) ?? this.#newSample(prompt);
    this.#samples.set(id, sample);
    this.push(id, own.subarray(sample.ids.length - sample.head));
  }

  /** Takes tokens that the sample has drawn. */
  push(id: string, tokenIds: Iterable<number>): void {
    const { prompt, ids } = this.#samples.get(id)!;
    for (const token of tokenIds) prompt.index!.push(ids, token);
  }

  /** Guesses for the sample's next tokens, at most `most`. */
  propose(id: string, most: number): number[] {
    const sample = this.#samples.get(id);
    if (!sample || most < 1) return [];
    return sample.prompt.index!.after(sample.ids, Math.min(most, sample.length));
  }

  /** Learns that `accepted` of `guessed` tokens were right. */
  learn(id: string, guessed: number, accepted: number): void {
    const sample = this.#samples.get(id);
    if (!sample) return;
    const length = accepted === guessed ? Math.max(sample.length, guessed + 2) : accepted;
    sample.length = Math.max(1, Math.min(length, this.#options.maxDraftTokens));
  }

  /** Ends a sample, which is remembered with its prompt. */
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
