/**
 * A decoder without a GPU, for tests of the scheduler. Rows of the KV cache hold tokens. The sampled token of a slot depends on its key,
 * its position and every token in its attention ranges. A row that was not computed, or that belongs to another sequence, is an error. A
 * row under old weights is an error too, unless `reached` records it.
 */

import type {
  DecoderSizes,
  DraftCheck,
  Draw,
  DrawnTokens,
  PrefillRows,
  SlotSetup,
} from '../src/rollout/decode/decoder.ts';
import type { RolloutServer } from '../src/rollout/server/server.ts';
import type { SlotDecoder } from '../src/rollout/server/slotDecoder.ts';
import { nextTask } from '../src/rollout/agent/yield.ts';
import type { GenerateRequest, Generation } from '../src/rollout/types.ts';

interface Slot extends SlotSetup {
  ids: number[];
  done: number;
  /** Bit mask of the tokens that can be sampled next. */
  mask?: Uint32Array | undefined;
  /** Context so far. */
  context: number[];
}

/** Difference between the cache entries of the same token under two consecutive versions of the weights. */
const WEIGHTS = 1000;

/** Returns a 32-bit hash of a list of numbers. */
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
  /** Replaces the sampled token by one that depends only on the request's key and on the number of tokens sampled. */
  says: ((key: readonly [number, number], drawn: number) => number) | undefined;
  /** True if a read-back resolves only in a later turn of the event loop, as a real one does. */
  takesTime = false;
  /** Version of the weights. A test changes it to simulate an update. */
  weights = 0;
  /**
   * Set by a test in which caches survive an update. Key: sample; value: the weight version of each KV row that the sample's last token
   * attended to.
   */
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

  /** Returns the cache entry of a token under the current weights. */
  #keyOf(token: number): number {
    return token + WEIGHTS * this.weights;
  }

  /** Returns the biased token if it is allowed, otherwise any allowed token. */
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

/** Runs three turns with waits between them. Each later turn extends the context by two tokens of a tool. */
export async function turns(
  server: RolloutServer,
  q: GenerateRequest,
  wait: () => Promise<unknown>,
): Promise<Generation[]> {
  const out: Generation[] = [];
  let contextIds = q.contextIds;
  for (let turn = 0; turn < 3; turn++) {
    const generation = await server.generate({ ...q, contextIds });
    out.push(generation);
    contextIds = Uint32Array.from([...contextIds, ...generation.tokenIds, 60 + turn, q.key[1] % 64]);
    await wait();
  }
  server.release(q.requestId);
  return out;
}
