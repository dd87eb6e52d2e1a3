/**
 * The rollout engine in server mode: requests of any length arrive at any time, every pass admits what fits, decodes all
 * live sequences in one batch, and hands a finished one back at once. A prompt is computed once for all that share it;
 * later turns of a sample continue from its own slot.
 *
 * The scheduler decides only when something is computed. What a sample draws depends on its key, its tokens and the
 * weights (kernels/sample.wgsl), so the schedule never shows in the tokens: not who else is there, and not whether the
 * sample lost its slot on the way and was computed again.
 */

import type { Gpu } from '../../gpu/device.ts';
import type { LlamaModel } from '../../model/llama.ts';
import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import type { SpeculativeOptions } from '../speculative/drafts.ts';
import { admit, enqueue, sendBack } from './admission.ts';
import { Decoder, type DecoderSizes } from '../decode/decoder.ts';
import { bounded, checkRequest, newJob } from './job.ts';
import { type Flight, land, launch } from './flight.ts';
import { answer } from './readBack.ts';
import { Readers } from './readers.ts';
import {
  type AsyncScheduling,
  newSchedule,
  type Preemption,
  type Schedule,
  type SlotDecoder,
  takeStats,
} from './schedule.ts';
import { Speculation } from '../speculative/speculation.ts';
import { nextTask } from '../agent/yield.ts';
import type { GenerateRequest, Generation, RolloutEngine, RolloutStats } from '../types.ts';

export type { AsyncScheduling, Preemption, SlotDecoder } from './schedule.ts';

export interface RolloutOptions {
  /** Default 'parked'. */
  preemption?: Preemption | undefined;
  /** Default 'auto'. */
  asyncScheduling?: AsyncScheduling | undefined;
  /** Asked for once, when a request has stop strings or constrained tool calls. */
  vocabulary?: (() => Vocabulary) | undefined;
  /** Absent = plain decoding. Neither tokens nor log-probs depend on it. */
  speculative?: SpeculativeOptions | undefined;
}

/** Passes that a sample keeps its slot for its next turn while others wait. */
const PARKED_PASSES = 4;

export class RolloutServer implements RolloutEngine {
  readonly #schedule: Schedule;
  readonly #readers: Readers;
  #arrived = 0;
  #paused = false;
  #looping: Promise<void> | undefined;
  /** Something happened while the loop was on its way out. */
  #again = false;

  constructor(decoder: SlotDecoder, options: RolloutOptions = {}) {
    const { preemption = 'parked', asyncScheduling = 'auto', speculative, vocabulary } = options;
    const speculation = speculative && new Speculation(speculative);
    this.#schedule = newSchedule(decoder, { preemption, asyncScheduling, speculation });
    this.#readers = new Readers(decoder.vocabSize, vocabulary);
  }

  generate(request: GenerateRequest): Promise<Generation> {
    return new Promise((resolve, reject) => {
      const { requestId } = request;
      const s = this.#schedule;
      if (s.jobs.has(requestId)) throw new Error(`generate("${requestId}") while its last turn is still generating.`);
      checkRequest(request, s.decoder.sizes, s.decoder.vocabSize);
      const readers = this.#readers.of(request);
      const arrival = s.arrivals.get(requestId) ?? this.#arrived++;
      s.arrivals.set(requestId, arrival);
      const job = newJob(bounded(request, s.decoder.sizes.slotCapacity), arrival, readers, resolve, reject);
      s.jobs.set(requestId, job);
      const { contextIds, promptLength } = request;
      s.speculation?.drafts.open(requestId, contextIds.subarray(0, promptLength), contextIds.subarray(promptLength));
      enqueue(s, job);
      this.#wake();
    });
  }

  release(requestId: string): void {
    if (this.#schedule.jobs.has(requestId))
      throw new Error(`release("${requestId}") while it is generating; abort it first.`);
    this.#schedule.arrivals.delete(requestId);
    this.#schedule.table.drop(requestId);
    this.#schedule.speculation?.drafts.close(requestId);
    this.#wake();
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) {
      const job = this.#schedule.jobs.get(id);
      if (!job) continue;
      job.aborted = true;
      if (job.phase === 'waiting') answer(this.#schedule, job, 'aborted');
    }
    this.#schedule.waiting = this.#schedule.waiting.filter((job) => !job.aborted);
  }

  resetCache(): void | Promise<void> {
    if (this.#schedule.running.size > 0) return this.#resetRunning();
    this.#schedule.decoder.weightsChanged();
    this.#schedule.table.reset();
    this.#schedule.version++;
  }

  async pause(): Promise<void> {
    this.#paused = true;
    await this.#looping;
  }

  resume(): void {
    this.#paused = false;
    this.#wake();
  }

  async takeStats(): Promise<RolloutStats> {
    return takeStats(this.#schedule);
  }

  #wake(): void {
    this.#again = true;
    if (this.#paused || this.#looping) return;
    this.#looping = this.#loop()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#looping = undefined;
        if (this.#again && this.#schedule.jobs.size > 0) this.#wake();
      });
  }

  /** A device error reaches everyone who waits. */
  #fail(error: unknown): void {
    for (const { reject } of this.#schedule.jobs.values()) reject(error);
    this.#schedule.jobs.clear();
    this.#schedule.running.clear();
    this.#schedule.waiting = [];
    this.#schedule.inTheAir = 0;
  }

  async #loop(): Promise<void> {
    await this.#gatherBurst();
    const s = this.#schedule;
    s.landed = undefined;
    const flights: Flight[] = []; // oldest first
    while (!this.#paused && s.jobs.size > 0) {
      this.#again = false;
      if (flights.length > 0) await nextTask(); // the device is busy: whoever has been answered may take its next turn
      await admit(s, PARKED_PASSES);
      if (s.running.size === 0 && flights.length === 0) {
        await nextTask(); // whoever has just been answered may release its slot, or take its next turn
        await admit(s, 0);
        if (s.running.size === 0) return; // all slots are held by samples that wait for something else
      }
      const flight = s.running.size > 0 ? launch(s) : undefined;
      if (flight) flights.push(flight);
      const ahead = flight && this.#runsAhead() ? 1 : 0;
      while (flights.length > ahead) await this.#land(flights.shift()!);
    }
    for (const flight of flights) await this.#land(flight);
  }

  /** Whether the next pass is launched before this one has come back: not where somebody must know its tokens first. */
  #runsAhead(): boolean {
    const { asyncScheduling, speculation, running, pace, decoder } = this.#schedule;
    if (asyncScheduling === 'off' || speculation || [...running].some((job) => job.guided)) return false;
    return asyncScheduling === 'on' || pace.paysToRunAhead(decoder.isSoftware);
  }

  async #land(flight: Flight): Promise<void> {
    const s = this.#schedule;
    await land(s, flight);
    await sendBack(
      s,
      [...s.running].filter((r) => r.phase === 'prefill' && r.aborted),
    );
  }

  /** Requests of one step arrive as separate messages; starting on the first alone would waste a pass. */
  async #gatherBurst(): Promise<void> {
    let seen = -1;
    while (seen !== this.#schedule.waiting.length) {
      seen = this.#schedule.waiting.length;
      await nextTask();
    }
  }

  async #resetRunning(): Promise<void> {
    const wasPaused = this.#paused;
    await this.pause();
    await sendBack(this.#schedule, [...this.#schedule.running]);
    await this.resetCache();
    if (!wasPaused) this.resume();
  }
}

/** The server on our own kernels. */
export class WgslRolloutEngine extends RolloutServer {
  constructor(gpu: Gpu, model: LlamaModel, sizes: DecoderSizes, options: RolloutOptions = {}) {
    super(new Decoder(gpu, model, sizes), options);
  }
}
