/** Assigns slots and cached prompt prefixes to samples. Only bookkeeping on the host; the keys and values are in the decoder. */

export interface Prefix {
  index: number;
  tokens: Uint32Array;
  /** Number of the prompt's tokens whose keys and values are in the cache. */
  computed: number;
  /** Number of slots that use the prefix. */
  users: number;
  /** False after the weights changed. The prefix must then not be shared with more samples. */
  fresh: boolean;
  lastUsed: number;
}

/** Cache entries of a sample, between its first turn and its release or preemption. */
export interface CachedSequence {
  slot: number;
  prefix: Prefix;
  /** Tokens after the prompt whose keys and values are in the slot, as ids. */
  ownTokens: number[];
  /** Number of the pass in which the sample's last turn ended; undefined during a turn. */
  parkedAt: number | undefined;
}

/** Manages slots and prefixes together: a sample has either both or neither. */
export class KvCacheManager {
  readonly #prefixes: PrefixCache;
  readonly #free: number[];
  readonly #sequences = new Map<string, CachedSequence>();

  constructor(sizes: { maxNumSeqs: number; maxPrompts: number; maxPromptLength: number }) {
    this.#prefixes = new PrefixCache(sizes.maxPrompts, sizes.maxPromptLength);
    this.#free = Array.from({ length: sizes.maxNumSeqs }, (_, i) => sizes.maxNumSeqs - 1 - i);
  }

  get freeSlots(): number {
    return this.#free.length;
  }

  /**
   * Returns a slot and a prefix for a sample's turn: those of its earlier turn, or free ones. Undefined if none are free. `computed` =
   * number of `ownTokens` (the tokens after the prompt) that are in the slot already.
   */
  allocate(
    id: string,
    prompt: Uint32Array,
    ownTokens: Uint32Array,
  ): { cached: CachedSequence; computed: number } | undefined {
    const cached = this.#sequences.get(id) ?? this.#allocateNew(id, prompt);
    if (!cached) return undefined;
    const computed = commonLength(ownTokens, cached.ownTokens);
    cached.ownTokens = [...ownTokens];
    cached.parkedAt = undefined;
    return { cached, computed };
  }

  /** Frees the slot of a sample, if the sample has one. */
  free(id: string): void {
    const sequence = this.#sequences.get(id);
    if (!sequence) return;
    this.#sequences.delete(id);
    this.#prefixes.release(sequence.prefix);
    this.#free.push(sequence.slot);
  }

  /** Returns the samples between two turns whose last turn ended in this pass or earlier. */
  parkedSince(pass: number): string[] {
    const parked = [...this.#sequences].filter(([, { parkedAt = Infinity }]) => parkedAt <= pass);
    return parked.map(([id]) => id);
  }

  /** Frees all slots and cached prefixes, because the weights have changed. */
  reset(): void {
    for (const id of [...this.#sequences.keys()]) this.free(id);
    this.#prefixes.reset();
  }

  /** Keeps the cached contents of samples that have a slot, their prompts included. New samples compute their prompts again. */
  keepSequences(): void {
    this.#prefixes.reset();
  }

  #allocateNew(id: string, prompt: Uint32Array): CachedSequence | undefined {
    if (this.#free.length === 0) return undefined;
    const prefix = this.#prefixes.acquire(prompt);
    if (!prefix) return undefined;
    const sequence: CachedSequence = { slot: this.#free.pop()!, prefix, ownTokens: [], parkedAt: undefined };
    this.#sequences.set(id, sequence);
    return sequence;
  }
}

function commonLength(a: Uint32Array, b: number[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

/** Cached prompts, which the samples of a group share. */
export class PrefixCache {
  readonly #maxLength: number;
  readonly #byKey = new Map<string, Prefix>();
  readonly #free: number[];
  #clock = 0;

  constructor(capacity: number, maxLength: number) {
    this.#maxLength = maxLength;
    this.#free = Array.from({ length: capacity }, (_, i) => capacity - 1 - i);
  }

  /** Returns the cached prefix of these tokens, or a new empty one; undefined if every entry is in use. */
  acquire(tokens: Uint32Array): Prefix | undefined {
    if (tokens.length > this.#maxLength)
      throw new RangeError(
        `A prompt has ${tokens.length} tokens but data.maxPromptLength is ${this.#maxLength}. Raise it or shorten the prompt.`,
      );
    const key = tokens.join();
    let prefix = this.#byKey.get(key);
    if (!prefix) {
      const index = this.#free.pop() ?? this.#evict();
      if (index === undefined) return undefined;
      prefix = { index, tokens, computed: 0, users: 0, fresh: true, lastUsed: 0 };
      this.#byKey.set(key, prefix);
    }
    prefix.users++;
    prefix.lastUsed = ++this.#clock;
    return prefix;
  }

  release(prefix: Prefix): void {
    prefix.users--;
    if (prefix.users === 0 && !prefix.fresh) this.#free.push(prefix.index);
  }

  /** Drops all entries. An entry in use is freed when its last user is released. */
  reset(): void {
    for (const prefix of this.#byKey.values()) {
      prefix.fresh = false;
      if (prefix.users === 0) this.#free.push(prefix.index);
    }
    this.#byKey.clear();
  }

  /** Frees an entry by dropping the least recently used prefix without users. */
  #evict(): number | undefined {
    let oldest: [string, Prefix] | undefined;
    for (const entry of this.#byKey)
      if (entry[1].users === 0 && (!oldest || entry[1].lastUsed < oldest[1].lastUsed)) oldest = entry;
    if (!oldest) return undefined;
    this.#byKey.delete(oldest[0]);
    return oldest[1].index;
  }
}
