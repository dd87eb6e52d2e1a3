/**
 * A decoder without a GPU, for tests of the scheduler: rows of the KV cache hold tokens, and what a slot draws depends on
 * its key, its position and every token that its attention ranges reach. A row that was not computed, or belongs to
 * somebody else, or lies under old weights, is an error (old weights: unless `reached` is there to tell of them).
 */

import type {
  DecoderSizes,
  DraftCheck,
  Draw,
  DrawnTokens,
  PrefillRows,
  SlotSetup,
} from '../src/rollout/decode/decoder.ts';
import type { SlotDecoder } from '../src/rollout/server/slotDecoder.ts';
import { nextTask } from '../src/rollout/agent/yield.ts';

interface Slot extends SlotSetup {
  ids: number[];
  done: number;
  /** Tokens that may be drawn next, as bits. */
  mask?: Uint32Array | undefined;
  /** Context so far. */
  context: number[];
}

/** Between the entries of a token under one version of the weights and the next. */
const WEIGHTS = 1000;

/** 32-bit mix of a list. */
function hash(values: readonly number[]): number {
  let h = 0x811c9dc5;
  for (const value of values) {
    h = Math.imul(h ^ value, 0x01000193);
    h ^= h >>> 15;
  }
  return h >>> 0;
}

export class ModelSlotDecoder implements SlotDecoder {
  readonly sizes: DecoderSizes;
  vocabSize: number;
  readonly isSoftware = false;
  /** The token that a key's turn draws after so many, in place of one that follows from the cache by chance. */
  says: ((key: [number, number], drawn: number) => number) | undefined;
  /** A read-back takes a turn of the event loop, as a real one does; slower where the machine is busy. */
  takesTime = false;
  /** Changed by the test to stand for an update. */
  weights = 0;
  /** Set by a test that keeps caches: by sample, the weights under which each row of its last draw lies. */
  reached: Map<string, number[]> | undefined;
  readonly #kv: number[];
  readonly #slots: (Slot | undefined)[];
  #live: number[] = [];

  constructor(sizes: DecoderSizes, vocabSize = 64) {
    this.sizes = sizes;
    this.vocabSize = vocabSize;
    this.#kv = new Array<number>(sizes.maxPrompts * sizes.maxPromptLength + sizes.maxNumSeqs * sizes.slotCapacity).fill(
      -1,
    );
    this.#slots = Array.from({ length: sizes.maxNumSeqs }, () => undefined);
  }

  ownStart(slot: number): number {
    return this.sizes.maxPrompts * this.sizes.maxPromptLength + slot * this.sizes.slotCapacity;
  }

  prefixStart(prompt: number): number {
    return prompt * this.sizes.maxPromptLength;
  }

  weightsChanged(): void {}

  setSlot(slot: number, setup: SlotSetup): void {
    this.#slots[slot] = { ...setup, ids: [], done: 0, context: [...setup.contextIds] };
  }

  prefill({ tokens, kvRows }: PrefillRows, draws: Draw[]): void {
    if (tokens.length > this.sizes.maxBatchedTokens) throw new Error(`${tokens.length} rows in one pass.`);
    tokens.forEach((token, i) => (this.#kv[kvRows[i]] = this.#keyOf(token)));
    for (const { slot } of draws) this.#draw(slot);
  }

  setMask(slot: number, mask: Uint32Array | undefined): void {
    this.#slots[slot]!.mask = mask;
  }

  verify({ tokens, kvRows }: PrefillRows, rounds: DraftCheck[][]): void {
    if (tokens.length > (this.sizes.verifyRows ?? this.sizes.maxNumSeqs))
      throw new Error(`${tokens.length} rows to verify.`);
    tokens.forEach((token, i) => (this.#kv[kvRows[i]] = this.#keyOf(token)));
    const held = new Set<number>();
    for (const { slot, expected, ...more } of rounds.flat()) {
      if (held.has(slot)) continue;
      if ('mask' in more) this.setMask(slot, more.mask);
      this.#draw(slot);
      if (this.#slots[slot]!.context.at(-1) !== expected) held.add(slot);
    }
  }

  setLive(slots: number[]): void {
    if (new Set(slots).size < slots.length) throw new Error('A slot is live twice.');
    this.#live = slots;
  }

  submit(): void {}

  decodeStep(): void {
    for (const slot of this.#live) {
      const s = this.#slots[slot]!;
      const last = s.context.length - 1;
      this.#kv[s.ownStart + last - s.promptLength] = this.#keyOf(s.context[last]);
      this.#draw(slot);
    }
  }

  async readState(): Promise<{ state: Uint32Array }> {
    const state = Uint32Array.from(this.#slots.flatMap((s) => [0, 0, s?.ids.length ?? 0, s?.done ?? 0]));
    if (this.takesTime) await nextTask();
    return { state };
  }

  readDrawn(slots: { slot: number; from?: number; count: number }[]): Promise<DrawnTokens[]> {
    const of = ({ slot, from = 0, count }: { slot: number; from?: number; count: number }) => {
      const tokenIds = Uint32Array.from(this.#slots[slot]!.ids.slice(from, from + count));
      return { tokenIds, logProbs: Float32Array.from(tokenIds, (id) => -id), logMass: new Float32Array(count) };
    };
    return Promise.resolve(slots.map(of));
  }

  /** The cache entry of a token under the weights of now. */
  #keyOf(token: number): number {
    return token + WEIGHTS * this.weights;
  }

  /** A biased token wherever it is allowed, else any that is. */
  #pick({ mask, sampling }: Slot, random: number): number {
    const allowed = Array.from({ length: this.vocabSize }, (_, token) => token).filter(
      (token) => !mask || (mask[token >>> 5] >>> (token & 31)) & 1,
    );
    const biased = sampling.logitBias?.find(([token]) => allowed.includes(token));
    return biased ? biased[0] : allowed[random % allowed.length];
  }

  #draw(slot: number): void {
    const s = this.#slots[slot]!;
    if (s.done !== 0) return;
    const own = s.context.length - s.promptLength;
    const reached = [
      ...this.#kv.slice(s.prefixStart, s.prefixStart + s.promptLength),
      ...this.#kv.slice(s.ownStart, s.ownStart + own),
    ];
    const isRow = (key: number, token: number) =>
      this.reached ? key >= 0 && key % WEIGHTS === token : key === this.#keyOf(token);
    const wrong = reached.findIndex((key, i) => !isRow(key, s.context[i]));
    if (wrong >= 0) throw new Error(`Slot ${slot}: position ${wrong} of its cache holds ${reached[wrong]}.`);
    const weights = reached.map((key) => Math.floor(key / WEIGHTS));
    this.reached?.set(s.key.join('.'), weights);
    const random = hash([...s.key, s.context.length, this.weights, ...reached]);
    const token = this.says?.(s.key, s.drawnBefore + s.ids.length) ?? this.#pick(s, random);
    s.ids.push(token);
    s.context.push(token);
    if (s.sampling.stopTokenIds.includes(token)) s.done = 1;
    else if (s.ids.length >= s.sampling.maxNewTokens - s.drawnBefore) s.done = 2;
  }
}
