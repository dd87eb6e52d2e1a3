/** Sampling of tokens on the GPU: stores each slot's sampling settings and sampled tokens, and records the sampling in a pass. */

import type { Gpu, View } from '../../gpu/device.ts';
import { headStats } from '../../gpu/ops/head.ts';
import { sample } from '../../gpu/ops/sample.ts';
import type { Head } from '../../model/head.ts';
import { AdjustedDraws, type DrawDetails } from './adjustedDraws.ts';
import { isAdjusted } from './adjustments.ts';
import { SlotRows } from './slotRows.ts';
import type { DrawnSoFar } from '../tokenLog.ts';
import type { SamplingParams } from '../types.ts';

/** Settings of a slot for a turn. Row numbers are of the KV cache. */
export interface SlotSetup {
  prefixStart: number;
  promptLength: number;
  ownStart: number;
  /** Token ids of the full context. Their number is the position of the first token to sample. */
  contextIds: Uint32Array;
  /** Number of tokens at the end of the context that this turn sampled before it was preempted. */
  drawnBefore: number;
  key: readonly [number, number];
  sampling: SamplingParams;
}

/** A token to sample: for a slot, from the logits of a row of the pass. */
export interface Draw {
  slot: number;
  row: number;
}

/** Tokens that a slot has sampled in a turn, with the details that its request asked for. */
export interface DrawnTokens extends DrawnSoFar, Partial<DrawDetails> {}

/** State of a slot: [last token, position of the next token, tokens sampled, 0 live | 1 stopped | 2 full]. */
const STATE_WIDTH = 4;

/** Returns a slot's row of the states that `Decoder.readState` returned. */
export function slotState(
  state: Uint32Array,
  slot: number,
): { drawnCount: number; end: 'stop' | 'length' | undefined } {
  const [, , drawnCount, end] = state.subarray(slot * STATE_WIDTH, (slot + 1) * STATE_WIDTH);
  return { drawnCount, end: end === 1 ? 'stop' : end === 2 ? 'length' : undefined };
}

/** If all sampled tokens have at most this many bytes, they are read together with the state, which is cheaper than a second read-back. */
const READ_WITH_STATE_BYTES = 1 << 19;

/** Owns the sampling state of the slots on the GPU, and records sampling. */
export class Draws {
  readonly #gpu: Gpu;
  readonly #head: Head;
  readonly #vocabSize: number;
  readonly #maxNumSeqs: number;
  readonly #slotCapacity: number;
  readonly #control: SlotRows;
  readonly #stops: SlotRows;
  readonly #state: SlotRows;
  readonly #drawn: View;
  readonly #temperatures: Float64Array;
  /** 1 = the slot's request needs #adjusted, which is created for the first such request. */
  readonly #isAdjusted: Uint8Array;
  #adjusted: AdjustedDraws | undefined;
  /** Bytes of #drawn as of the last read-back. */
  #kept: ArrayBuffer | undefined;

  constructor(gpu: Gpu, head: Head, vocabSize: number, maxNumSeqs: number, slotCapacity: number) {
    this.#gpu = gpu;
    this.#head = head;
    this.#vocabSize = vocabSize;
    this.#maxNumSeqs = maxNumSeqs;
    this.#slotCapacity = slotCapacity;
    this.#control = new SlotRows(gpu, 'rollout.control', maxNumSeqs, 8);
    this.#stops = new SlotRows(gpu, 'rollout.stops', maxNumSeqs, 4);
    this.#state = new SlotRows(gpu, 'rollout.state', maxNumSeqs, STATE_WIDTH);
    this.#drawn = gpu.buffer('rollout.drawn', maxNumSeqs * slotCapacity * 3 * 4);
    this.#temperatures = new Float64Array(maxNumSeqs).fill(1);
    this.#isAdjusted = new Uint8Array(maxNumSeqs);
  }

  /** Prepares a slot for its next turn. `flush` uploads the settings. */
  arm(slot: number, { contextIds, drawnBefore, key, sampling }: SlotSetup): void {
    const greedy = sampling.temperature === 0;
    const bits = new Float32Array([greedy ? 0 : 1 / sampling.temperature, sampling.topP, sampling.minP]);
    const [invT, topP, minP] = new Uint32Array(bits.buffer);
    const stops = [0, 1, 2, 3].map((i) => sampling.stopTokenIds[i] ?? 0xffffffff);
    const control = [...key, sampling.maxNewTokens - drawnBefore, invT, sampling.topK, topP, minP, 0];
    this.#temperatures[slot] = greedy ? 1 : sampling.temperature;
    this.#control.set(slot, control);
    this.#stops.set(slot, stops);
    this.#state.set(slot, [0, contextIds.length, 0, 0]);
    this.#isAdjusted[slot] = isAdjusted(sampling) ? 1 : 0;
    if (this.#isAdjusted[slot]) {
      const before = contextIds.length - drawnBefore;
      this.reserveAdjusted().arm(slot, sampling, contextIds.subarray(0, before), contextIds.subarray(before));
    }
  }

  /** [slots, STATE_WIDTH] */
  get state(): View {
    return this.#state.view;
  }

  /** Uploads the settings of prepared slots. */
  flush(): void {
    for (const rows of [this.#control, this.#stops, this.#state]) rows.flush();
  }

  /** Returns the sampling for penalties, masks, minimum lengths, entropies and top log-probs. Its buffers are allocated at first use. */
  reserveAdjusted(): AdjustedDraws {
    const [slots, V, cap] = [this.#maxNumSeqs, this.#vocabSize, this.#slotCapacity];
    return (this.#adjusted ??= new AdjustedDraws(this.#gpu, this.#views(), slots, V, cap));
  }

  mask(slot: number, mask: Uint32Array | undefined): void {
    this.reserveAdjusted().mask(slot, mask);
  }

  temperatureOf(slot: number): number {
    return this.#temperatures[slot];
  }

  /** Sorts tokens to sample by kind (plain or adjusted) and temperature, so that those that one kernel call can sample are adjacent. */
  byKind<D extends Draw>(draws: D[]): D[] {
    return [...draws].sort(
      (a, b) => this.#kind(a) - this.#kind(b) || this.#temperatures[a.slot] - this.#temperatures[b.slot],
    );
  }

  /**
   * Records sampling from the head's logits [R, V] for the entries of `live` from `first` on, in one kernel call per kind and temperature.
   * `current` is the temperature of the head's stats. Returns the temperature of the stats afterwards.
   */
  record(R: number, live: View, draws: Draw[], first: number, current: number): number {
    const V = this.#vocabSize;
    const { logits, stats } = this.#head;
    const views = this.#views();
    this.#kept = undefined;
    this.#gpu.timeAs('sample');
    while (first < draws.length) {
      const { slot } = draws[first];
      const temperature = this.#temperatures[slot];
      const same = (d: Draw) =>
        this.#temperatures[d.slot] === temperature && this.#kind(d) === this.#kind(draws[first]);
      let n = 1;
      while (first + n < draws.length && same(draws[first + n])) n++;
      if (temperature !== current) headStats(this.#gpu, { logits, stats, R, V, temperature });
      current = temperature;
      const rows = { logits, stats, live, first, n };
      if (this.#isAdjusted[slot]) {
        const slots = draws.slice(first, first + n).map((d) => d.slot);
        this.reserveAdjusted().record({ ...rows, temperature }, slots);
      } else sample(this.#gpu, { ...rows, ...views, V, cap: this.#slotCapacity });
      first += n;
    }
    return current;
  }

  /** Buffers to read after a pass: the slots' state, and all sampled tokens if they are few, because they are usually read next. */
  get views(): View[] {
    return this.#drawn.bytes <= READ_WITH_STATE_BYTES ? [this.state, this.#drawn] : [this.state];
  }

  /** Stores the contents of `views`, so that `read` needs no read-back until more tokens are sampled. */
  keep([, drawn]: (ArrayBuffer | undefined)[]): void {
    this.#kept = drawn;
  }

  /** Reads tokens that slots have sampled in this turn: `count` per slot, from index `from` on. */
  async read(slots: { slot: number; from?: number; count: number }[]): Promise<DrawnTokens[]> {
    const cap = this.#slotCapacity;
    const parts = slots.map(({ slot, from = 0, count }) => ({
      view: this.#drawn,
      offset: (slot * cap + from) * 12,
      bytes: count * 12,
    }));
    const detailed = slots.filter(({ slot }) => this.#isAdjusted[slot]);
    const details = detailed.map(({ slot, from = 0, count }) => this.reserveAdjusted().detailsRange(slot, from, count));
    const kept = details.length === 0 ? this.#kept : undefined;
    const buffers = kept
      ? parts.map(({ offset, bytes }) => kept.slice(offset, offset + bytes))
      : await this.#gpu.readRanges([...parts, ...details]);
    return slots.map((entry, i) => {
      const at = detailed.indexOf(entry);
      return {
        ...drawnTokens(buffers[i]),
        ...(at >= 0 && this.reserveAdjusted().detailsOf(entry.slot, buffers[slots.length + at])),
      };
    });
  }

  #views() {
    return { control: this.#control.view, stops: this.#stops.view, state: this.state, drawn: this.#drawn };
  }

  #kind({ slot }: Draw): number {
    return this.#isAdjusted[slot];
  }
}

/** Decodes words [count, 3] that sample.wgsl has written. */
function drawnTokens(buffer: ArrayBuffer): DrawnTokens {
  const [u32, f32] = [new Uint32Array(buffer), new Float32Array(buffer)];
  const count = u32.length / 3;
  return {
    tokenIds: Uint32Array.from({ length: count }, (_, i) => u32[i * 3]),
    logProbs: Float32Array.from({ length: count }, (_, i) => f32[i * 3 + 1]),
    logMass: Float32Array.from({ length: count }, (_, i) => f32[i * 3 + 2]),
  };
}
