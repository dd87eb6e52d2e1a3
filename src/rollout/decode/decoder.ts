/**
 * GPU half of rollout: the KV cache, the slots' states, and the two kinds of passes (prefill and decode step). Between passes the host
 * reads only the slots' states. It reads sampled tokens together with the states if they are few, otherwise when a sequence ends.
 */

import type { Gpu, View } from '../../gpu/device.ts';
import { acceptDraft } from '../../gpu/ops/accept_draft.ts';
import { decodeRows } from '../../gpu/ops/sample.ts';
import { type Activations, createActivations } from '../../model/activations.ts';
import { recordForward, type RowViews } from '../../model/forward.ts';
import { Head } from '../../model/head.ts';
import type { LlamaModel } from '../../model/llama.ts';
import { type Draw, type DrawnTokens, Draws, type SlotSetup } from './draws.ts';
import { SlotRows } from './slotRows.ts';
import type { GpuTimes } from '../server/turnClock.ts';

export type { Draw, DrawnTokens, SlotSetup } from './draws.ts';

export interface DecoderSizes {
  /** Maximum number of sequences that can run at the same time. */
  maxNumSeqs: number;
  /** Maximum number of tokens after the prompt in one slot. */
  slotCapacity: number;
  /** Maximum number of distinct prompts in the cache, and their maximum length. */
  maxPrompts: number;
  maxPromptLength: number;
  /** Maximum number of rows of a prefill pass. */
  maxBatchedTokens: number;
  /** Maximum number of rows of logits in a pass with speculative decoding. Default: maxNumSeqs. */
  verifyRows?: number;
}

/** Rows of a prefill pass as arrays on the host. */
export interface PrefillRows {
  tokens: number[];
  positions: number[];
  kvRows: number[];
  /** Key ranges of attention, four numbers per row. */
  ranges: number[];
}

/** A token to sample and compare with a guess. The slot samples from its next row only if the guess was right. */
export interface DraftCheck extends Draw {
  expected: number;
  /** Allowed tokens as in `setMask`. Only for a slot whose sampling has `toolCalls`. */
  mask?: Uint32Array | undefined;
}

/** Owns the KV cache and the slots' state on the GPU, and records passes over them. */
export class Decoder {
  readonly sizes: DecoderSizes;
  readonly #gpu: Gpu;
  readonly #model: LlamaModel;
  readonly #head: Head;
  readonly #activations: Activations;
  readonly #rows: Omit<RowViews, 'N'>;
  readonly #headRows: View;
  readonly #identity: View;
  readonly #live: { prefill: View; decode: View };
  /** [head rows, 4] tokens to sample in a pass that checks guesses */
  readonly #checks: View;
  readonly #slots: SlotRows;
  readonly #draws: Draws;
  #decoding: Draw[] = [];
  #headStale = true;

  constructor(gpu: Gpu, model: LlamaModel, sizes: DecoderSizes) {
    const { maxNumSeqs, slotCapacity, maxPrompts, maxPromptLength, maxBatchedTokens } = sizes;
    const { numHiddenLayers: L, numKeyValueHeads: K, headDim: D } = model.config;
    this.sizes = sizes;
    this.#gpu = gpu;
    this.#model = model;
    const kvRows = maxPrompts * maxPromptLength + maxNumSeqs * slotCapacity;
    const values = kvRows * 2 * K * D;
    const kv = Array.from({ length: L }, (_, l) =>
      model.half ? gpu.halves(`kv.${l}`, values) : gpu.buffer(`kv.${l}`, values * 4),
    );
    const headRows = Math.max(maxNumSeqs, sizes.verifyRows ?? 0);
    const capacity = Math.max(maxBatchedTokens, headRows);
    const u32 = (label: string, n: number) => gpu.buffer(`rollout.${label}`, n * 4);
    this.#activations = createActivations(gpu, model.config, capacity, {
      kvCaches: kv,
      lora: model.lora,
      half: model.half,
    });
    this.#head = new Head(gpu, model, headRows, false, true);
    this.#rows = {
      tokens: u32('tokens', capacity),
      positions: u32('positions', capacity),
      kvRows: u32('kvRows', capacity),
      ranges: u32('ranges', capacity * 4),
    };
    this.#headRows = u32('headRows', maxNumSeqs);
    this.#identity = gpu.buffer(
      'rollout.identity',
      Uint32Array.from({ length: headRows }, (_, i) => i),
    );
    this.#live = { prefill: u32('live.prefill', maxNumSeqs * 4), decode: u32('live.decode', maxNumSeqs * 4) };
    this.#checks = u32('checks', headRows * 4);
    this.#slots = new SlotRows(gpu, 'rollout.slots', maxNumSeqs, 4);
    this.#draws = new Draws(gpu, this.#head, this.vocabSize, maxNumSeqs, slotCapacity);
  }

  get vocabSize(): number {
    return this.#model.config.vocabSize;
  }

  /** Allocates the buffers for requests with penalties, a minimum length or constrained calls before the first such request. */
  reserveAdjusted(): void {
    this.#draws.reserveAdjusted();
  }

  /** Number of bytes that `readState` reads back. */
  get stateBytes(): number {
    return this.#draws.views.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** First KV row of a slot's own region, and of the region of a cached prompt. */
  ownStart(slot: number): number {
    return this.sizes.maxPrompts * this.sizes.maxPromptLength + slot * this.sizes.slotCapacity;
  }

  prefixStart(prompt: number): number {
    return prompt * this.sizes.maxPromptLength;
  }

  /** Must be called after the weights have changed and before the next pass. */
  weightsChanged(): void {
    this.#headStale = true;
  }

  /** Prepares a slot for a new turn, which starts in the next prefill pass. */
  setSlot(slot: number, setup: SlotSetup): void {
    const { prefixStart, promptLength, ownStart } = setup;
    this.#slots.set(slot, [prefixStart, promptLength, ownStart, 0]);
    this.#draws.arm(slot, setup);
  }

  /** Sets the tokens that can follow next in a slot, as bits; undefined = all. The slot's sampling must have `toolCalls`. */
  setMask(slot: number, mask: Uint32Array | undefined): void {
    this.#draws.mask(slot, mask);
  }

  /** Records a prefill pass, and the sampling of the first token of every slot in `draws`. */
  prefill(rows: PrefillRows, draws: Draw[]): void {
    const N = rows.tokens.length;
    const [headRows, drawsByRow] = distinctRows(this.#draws.byKind(draws));
    this.#gpu.timeAs('prefill');
    this.#slots.flush();
    this.#draws.flush();
    this.#writeRows(rows);
    if (draws.length > 0) {
      this.#gpu.write(this.#headRows, Uint32Array.from(headRows));
      this.#writeLive(this.#live.prefill, drawsByRow);
    }
    recordForward(this.#gpu, this.#model, { N, ...this.#rows }, this.#activations, { inference: true });
    if (draws.length > 0) this.#draw(this.#headRows, headRows.length, this.#live.prefill, drawsByRow);
  }

  /**
   * Records a pass that checks guessed tokens. Round r samples from row r of each slot that has such a row and whose earlier guesses were
   * all right. `expected` is 0xffffffff in the last row of a slot.
   */
  verify(rows: PrefillRows, rounds: DraftCheck[][]): void {
    const gpu = this.#gpu;
    const N = rows.tokens.length;
    const sorted = rounds.map((checks) => this.#draws.byKind(checks));
    const draws = sorted.flat();
    gpu.timeAs('decode');
    const entries = this.#checks;
    this.#writeRows(rows);
    gpu.write(entries, Uint32Array.from(draws.flatMap(({ slot, row, expected }) => [slot, row, expected, 0])));
    recordForward(gpu, this.#model, { N, ...this.#rows }, this.#activations, { inference: true });
    let temperature = this.#recordLogits(this.#identity, N, draws[0]);
    let first = 0;
    for (const round of sorted) {
      const { length: n } = round;
      for (const check of round) if ('mask' in check) this.setMask(check.slot, check.mask);
      temperature = this.#draws.record(N, entries, draws.slice(0, first + n), first, temperature);
      acceptDraft(gpu, { entries, state: this.#draws.state, first, n, resume: false });
      first += n;
    }
    acceptDraft(gpu, { entries, state: this.#draws.state, first: 0, n: sorted[0].length, resume: true });
  }

  /** Sets the slots for which the next decode steps sample tokens. */
  setLive(slots: number[]): void {
    const draws = this.#draws.byKind(slots.map((slot) => ({ slot, row: 0 })));
    this.#decoding = draws.map(({ slot }, row) => ({ slot, row }));
    if (slots.length > 0) this.#writeLive(this.#live.decode, this.#decoding);
  }

  /** Records one decode step of the live slots. */
  decodeStep(): void {
    const n = this.#decoding.length;
    if (n === 0) return;
    this.#gpu.timeAs('decode');
    const rows = { ...this.#rows, slots: this.#slots.view, state: this.#draws.state, live: this.#live.decode };
    decodeRows(this.#gpu, { ...rows, n });
    recordForward(this.#gpu, this.#model, { N: n, ...this.#rows, alone: true }, this.#activations, { inference: true });
    this.#draw(this.#identity, n, this.#live.decode, this.#decoding);
  }

  /** Submits the recorded work without waiting for it, so that more can be recorded while the device works. */
  submit(): void {
    this.#gpu.flush();
  }

  /**
   * Runs the recorded work and reads the state of every slot, [slots, STATE_WIDTH]. After it, `readDrawn` usually needs no other read-back.
   * With `Gpu.startTimer`, also returns the GPU's milliseconds since the last call.
   */
  async readState(): Promise<{ state: Uint32Array; gpuTimes?: GpuTimes | undefined }> {
    this.#gpu.timeAs(undefined);
    const { data, times } = await this.#gpu.readTimed(...this.#draws.views);
    this.#draws.keep(data);
    const { prefill = 0, decode = 0, sample: drawing = 0 } = times ?? {};
    return { state: new Uint32Array(data[0]), gpuTimes: times && { prefill, decode, sample: drawing } };
  }

  /** Reads tokens that slots have sampled in this turn: `count` per slot, from index `from` on. */
  readDrawn(slots: { slot: number; from?: number; count: number }[]): Promise<DrawnTokens[]> {
    return this.#draws.read(slots);
  }

  /** Records the logits of `R` rows of the pass, then the sampling of one token for each entry. */
  #draw(headRows: View, R: number, live: View, draws: Draw[]): void {
    this.#draws.record(R, live, draws, 0, this.#recordLogits(headRows, R, draws[0]));
  }

  /** Records the logits of `R` rows and their stats, at the temperature of the slot of `draw`. Returns this temperature. */
  #recordLogits(headRows: View, R: number, { slot }: Draw): number {
    if (this.#headStale) this.#head.refresh();
    this.#headStale = false;
    const temperature = this.#draws.temperatureOf(slot);
    this.#head.recordLogits(this.#activations.xOut, headRows, R, temperature);
    return temperature;
  }

  #writeRows(rows: PrefillRows): void {
    for (const name of ['tokens', 'positions', 'kvRows', 'ranges'] as const)
      this.#gpu.write(this.#rows[name], Uint32Array.from(rows[name]));
  }

  #writeLive(view: View, draws: Draw[]): void {
    this.#gpu.write(view, Uint32Array.from(draws.flatMap(({ slot, row }) => [slot, row, 0, 0])));
  }
}

/** Returns the distinct rows that tokens are sampled from, and the draws with each row replaced by its index among the distinct rows. */
function distinctRows(draws: Draw[]): [rows: number[], draws: Draw[]] {
  const rows = [...new Set(draws.map((d) => d.row))];
  const place = new Map(rows.map((row, i) => [row, i]));
  return [rows, draws.map(({ slot, row }) => ({ slot, row: place.get(row)! }))];
}
