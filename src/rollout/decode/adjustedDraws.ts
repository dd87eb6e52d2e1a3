/**
 * Samples tokens with penalties, logit biases, masks and a minimum length, and records entropies and top log-probs. Its buffers are created
 * for the first request that needs one of these. Other requests never use them.
 */

import type { Gpu, View } from '../../gpu/device.ts';
import { adjustLogits, recordDraw, topLogprobs } from '../../gpu/ops/adjust_logits.ts';
import { DETAIL_WIDTH, EXTRA_WIDTH } from '../../gpu/ops/adjustWidths.ts';
import { headStats } from '../../gpu/ops/head.ts';
import { maskLogits, maskWords } from '../../gpu/ops/mask_logits.ts';
import { sample } from '../../gpu/ops/sample.ts';
import type { SamplingParams } from '../types.ts';

/** Buffers of the decoder that are used by both plain and adjusted sampling. */
interface DrawViews {
  /** [slots, 8] */ control: View;
  /** [slots, 4] */ stops: View;
  /** [slots, 4] */ state: View;
  /** [slots, cap, 3] */ drawn: View;
}

/**
 * Rows to sample from: the logits [R, V] and their stats at `temperature`. The samples are for entries first .. first + n - 1 of `live`.
 */
interface DrawRows {
  logits: View;
  stats: View;
  live: View;
  first: number;
  n: number;
  temperature: number;
}

/** Entropies and most likely tokens at the positions of a slot's sampled tokens. */
export interface DrawDetails {
  entropies: Float32Array;
  alternatives: { tokenId: number; logProb: number }[][];
}

/** Owns the buffers of adjusted sampling, and records its kernels. */
export class AdjustedDraws {
  readonly #gpu: Gpu;
  readonly #V: number;
  readonly #cap: number;
  readonly #own: DrawViews;
  readonly #adjusted: View;
  readonly #stats: View;
  readonly #entries: View;
  readonly #extras: View;
  readonly #counts: View;
  readonly #details: View;
  /** [slots, words of V bits] */
  readonly #masks: View;
  /** Mask that each slot's row of #masks has; undefined = all bits set. */
  readonly #masked: (Uint32Array | undefined)[];
  /** Number of top log-probs that each slot's request has asked for. */
  readonly #wanted: Uint8Array;

  constructor(gpu: Gpu, own: DrawViews, slots: number, vocabSize: number, cap: number) {
    this.#gpu = gpu;
    this.#own = own;
    this.#V = vocabSize;
    this.#cap = cap;
    const words = (label: string, n: number) => gpu.buffer(`rollout.${label}`, n * 4);
    this.#adjusted = words('adjusted', slots * vocabSize);
    this.#stats = words('adjusted.stats', slots * 2);
    this.#entries = words('adjusted.entries', slots * 4);
    this.#extras = words('extras', slots * EXTRA_WIDTH);
    this.#counts = words('counts', slots * vocabSize);
    this.#details = words('details', slots * cap * DETAIL_WIDTH);
    this.#masks = gpu.buffer('rollout.masks', new Uint32Array(slots * maskWords(vocabSize)).fill(0xffffffff));
    this.#wanted = new Uint8Array(slots);
    this.#masked = Array.from({ length: slots }, () => undefined);
  }

  /** Prepares a slot for a turn. `drawnIds` are tokens of the same turn that were sampled before it was preempted. */
  arm(slot: number, sampling: SamplingParams, contextIds: Uint32Array, drawnIds: ArrayLike<number>): void {
    const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = [] } = sampling;
    const { minNewTokens = 0, topLogprobs: wanted = 0 } = sampling;
    const words = new Uint32Array(8 + logitBias.length * 2);
    const floats = new Float32Array(words.buffer);
    floats.set([repetitionPenalty, presencePenalty, frequencyPenalty]);
    words.set([Math.max(0, minNewTokens - drawnIds.length), logitBias.length, wanted], 3);
    logitBias.forEach(([token, bias], b) => {
      words[8 + b * 2] = token;
      floats[9 + b * 2] = bias;
    });
    this.#wanted[slot] = wanted;
    this.mask(slot, undefined);
    this.#gpu.write(this.#extras, words, slot * EXTRA_WIDTH);
    this.#gpu.write(this.#counts, this.#countsOf(contextIds, drawnIds), slot * this.#V);
  }

  /** Allows only the tokens of a mask to follow next in a slot: [maskWords(V)] bits; undefined = all tokens. */
  mask(slot: number, mask: Uint32Array | undefined): void {
    if (mask === this.#masked[slot]) return;
    const words = maskWords(this.#V);
    this.#gpu.write(this.#masks, mask ?? new Uint32Array(words).fill(0xffffffff), slot * words);
    this.#masked[slot] = mask;
  }

  /** Records the sampling of one token for each entry. `slots` are the slots of the entries, in order. */
  record(rows: DrawRows, slots: number[]): void {
    const gpu = this.#gpu;
    const { logits, stats, live, first, n, temperature } = rows;
    const { control, stops, state, drawn } = this.#own;
    const V = this.#V;
    const cap = this.#cap;
    const entries = this.#entries;
    const adjusted = this.#adjusted;
    const settings = { extras: this.#extras, counts: this.#counts, stops, state };
    adjustLogits(gpu, { logits, live, ...settings, adjusted, entries, first, n, V });
    if (slots.some((slot) => this.#masked[slot])) maskLogits(gpu, { entries, masks: this.#masks, adjusted, n, V });
    headStats(gpu, { logits: adjusted, stats: this.#stats, R: n, V, temperature });
    const changed = { logits: adjusted, stats: this.#stats, live: entries, first: 0 };
    sample(gpu, { ...changed, control, stops, state, drawn, n, V, cap });
    const after = { entries, logits, stats, control, state, details: this.#details, n, V, cap };
    recordDraw(gpu, { ...after, drawn, counts: this.#counts });
    if (slots.some((slot) => this.#wanted[slot] > 0)) topLogprobs(gpu, { ...after, extras: this.#extras });
  }

  /** Returns the byte range with the details of `count` sampled tokens of a slot, for `Gpu.readRanges`. */
  detailsRange(slot: number, from: number, count: number): { view: View; offset: number; bytes: number } {
    const row = DETAIL_WIDTH * 4;
    return { view: this.#details, offset: (slot * this.#cap + from) * row, bytes: count * row };
  }

  /** Decodes the bytes that were read from the range of `detailsRange`. */
  detailsOf(slot: number, buffer: ArrayBuffer): DrawDetails {
    const [words, floats] = [new Uint32Array(buffer), new Float32Array(buffer)];
    const count = words.length / DETAIL_WIDTH;
    const one = (t: number, k: number) => {
      const at = t * DETAIL_WIDTH + 1 + k * 2;
      return { tokenId: words[at], logProb: floats[at + 1] };
    };
    const wanted = Math.min(this.#wanted[slot], this.#V);
    return {
      entropies: Float32Array.from({ length: count }, (_, t) => floats[t * DETAIL_WIDTH]),
      alternatives: Array.from({ length: count }, (_, t) => Array.from({ length: wanted }, (_, k) => one(t, k))),
    };
  }

  #countsOf(contextIds: Uint32Array, drawnIds: ArrayLike<number>): Uint32Array {
    const counts = new Uint32Array(this.#V);
    for (const id of contextIds) counts[id] |= 0x80000000;
    for (let i = 0; i < drawnIds.length; i++) counts[drawnIds[i]]++;
    return counts;
  }
}
