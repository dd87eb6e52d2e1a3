/**
 * Samples tokens from logits on the GPU: holds each slot's sampling settings and sampled tokens, and records the
 * sampling of a pass.
 */

import type { Gpu, View } from '../../gpu/device.ts';
import { headStats } from '../../gpu/ops/head.ts';
import { sample } from '../../gpu/ops/sample.ts';
import type { Head } from '../../model/head.ts';
import { AdjustedDraws, type DrawDetails, isAdjusted } from './adjustedDraws.ts';
import { SlotRows } from './slotRows.ts';
import type { DrawnSoFar } from '../tokenLog.ts';
import type { SamplingParams } from '../types.ts';

/** Settings of a slot for a turn. Rows are rows of the KV cache. */
export interface SlotSetup {
  prefixStart: number;
  promptLength: number;
  ownStart: number;
  /** The full context; its length is the position of the first token to sample. */
  contextIds: Uint32Array;
  /** Number of tokens at its end that this turn sampled before it was preempted. */
  drawnBefore: number;
  key: [number, number];
  sampling: SamplingParams;
}

/** One token to sample for a slot from a row of the pass. */
export interface Draw {
  slot: number;
  row: number;
}

/** Tokens that a slot has sampled in a turn, and their requested details. */
export interface DrawnTokens extends DrawnSoFar, Partial<DrawDetails> {}

/** [token, position of the next, tokens sampled, 0 live | 1 stopped | 2 full] of a slot. */
const STATE_WIDTH = 4;

/** A slot's row of the states that `Decoder.readState` returns. */
export function slotState(
  state: Uint32Array,
  slot: number,
): { drawnCount: number; end: 'stop' | 'length' | undefined } {
  const [, , drawnCount, end] = state.subarray(slot * STATE_WIDTH, (slot + 1) * STATE_WIDTH);
  return { drawnCount, end: end === 1 ? 'stop' : end === 2 ? 'length' : undefined };
}

/** Up to this many bytes of sampled tokens are read with the state, because that is cheaper than a second read-back. */
const READ_WITH_STATE_BYTES = 1 << 19;

/** Owns the slots' sampling state on the GPU, and records sampling. */
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
  /** 1 = the slot samples through #adjusted, which exists after the first such request. */
  readonly #isAdjusted: Uint8Array;
  #adjusted: AdjustedDraws | undefined;
  /** Contents of #drawn at the last read. */
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

  /** Prepares a slot for its next turn; `flush` uploads the settings. */
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

  /** Buffers for sampling with more than temperature and truncation; created at first use. */
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

  /** Sorts draws so that those of one kernel call are neighbours. */
  byKind<D extends Draw>(draws: D[]): D[] {
    return [...draws].sort(
      (a, b) => this.#kind(a) - this.#kind(b) || this.#temperatures[a.slot] - this.#temperatures[b.slot],
    );
  }

  /**
   * Samples from the head's logits [R, V] for entries of `live` from `first` on, one kind and temperature at a time.
   * `current` is the temperature of the head's stats. Returns the temperature afterwards.
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

  /**
   * Views to read after a pass: the slots' state, and all sampled tokens if they are few, because they are usually
   * needed next.
   */
  get views(): View[] {
    return this.#drawn.bytes <= READ_WITH_STATE_BYTES ? [this.state, this.#drawn] : [this.state];
  }

  /**
   * Caches the contents of `views`, so that `read` needs no read-back until more tokens are sampled. A pass can be in
   * flight by then; the scheduler requests only tokens that this state counts.
   */
  keep([, drawn]: (ArrayBuffer | undefined)[]): void {
    this.#kept = drawn;
  }

  /** Reads the tokens that slots sampled this turn: `count` per slot, starting at index `from`. */
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

/** Decodes [count, 3] words as sample.wgsl writes them. */
function drawnTokens(buffer: ArrayBuffer): DrawnTokens {
  const [u32, f32] = [new Uint32Array(buffer), new Float32Array(buffer)];
  const count = u32.length / 3;
  return {
    tokenIds: Uint32Array.from({ length: count }, (_, i) => u32[i * 3]),
    logProbs: Float32Array.from({ length: count }, (_, i) => f32[i * 3 + 1]),
    logMass: Float32Array.from({ length: count }, (_, i) => f32[i * 3 + 2]),
  };
}
