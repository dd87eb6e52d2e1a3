/**
 * The rollout engine in server mode: requests of any length arrive at any time, every pass admits what fits, decodes all
 * live sequences in one batch, and hands a finished one back at once. A prompt is computed once for all that share it;
 * later turns of a sample continue from its own slot.
 *
 * The scheduler decides only when something is computed. What a sample draws depends on its key, its tokens and the
 * weights (kernels/sample.wgsl), so the schedule never shows in the tokens: not who else is there, and not whether the
 * sample lost its slot on the way and was computed again.
 */

import type { Gpu } from '../gpu/device.ts';
import type { LlamaModel } from '../model/forward.ts';
import type { Vocabulary } from '../model/vocabulary.ts';
import type { SpeculativeOptions } from './drafts.ts';
import { Decoder, type DecoderSizes, STATE_WIDTH } from './decoder.ts';
import {
  bounded,
  checkRequest,
  generationOf,
  type Job,
  keepPiece,
  looksAtTokens,
  newJob,
  readAlong,
  type Running,
  tokensLeft,
} from './job.ts';
import { SlotTable } from './kvCache.ts';
import { Pace } from './pace.ts';
import { planPrefill } from './prefill.ts';
import { Readers } from './readers.ts';
import { Speculation, STEPS_BETWEEN_GUESSES } from './speculation.ts';
import { nextTask } from './startLine.ts';
import type { PassTimes } from './turnClock.ts';
import type { GenerateRequest, Generation, RolloutEngine, RolloutStats } from './types.ts';

/**
 * Who loses its slot while another waits for one, latest arrived first. 'parked': samples between two turns, whose tool
 * takes long. 'latest': also a running sample, for one that arrived before it. 'off': nobody.
 */
export type Preemption = 'off' | 'parked' | 'latest';

export interface RolloutOptions {
  /** Default 'parked'. */
  preemption?: Preemption | undefined;
  /** Asked for once, when a request has stop strings or constrained tool calls. */
  vocabulary?: (() => Vocabulary) | undefined;
  /** Absent = plain decoding. Neither tokens nor log-probs depend on it. */
  speculative?: SpeculativeOptions | undefined;
}

/** Passes that a sample keeps its slot for its next turn while others wait. */
const PARKED_PASSES = 4;

/** What the scheduler drives; a test may put a model of it in place of the GPU. */
export type SlotDecoder = Pick<
  Decoder,
  | 'sizes'
  | 'vocabSize'
  | 'ownStart'
  | 'prefixStart'
  | 'weightsChanged'
  | 'setSlot'
  | 'prefill'
  | 'verify'
  | 'setMask'
  | 'setLive'
  | 'decodeStep'
  | 'submit'
  | 'readState'
  | 'readDrawn'
> &
  Partial<Pick<Decoder, 'gpuTimes'>>;

export class RolloutServer implements RolloutEngine {
  readonly #decoder: SlotDecoder;
  readonly #preemption: Preemption;
  readonly #speculation: Speculation | undefined;
  readonly #readers: Readers;
  readonly #table: SlotTable;
  /** Number of every sample from its first request to its release, in order of arrival. */
  readonly #arrivals = new Map<string, number>();
  readonly #jobs = new Map<string, Job>();
  /** By arrival. */
  #waiting: Job[] = [];
  readonly #running = new Set<Running>();
  readonly #pace = new Pace();
  #stats = emptyStats();
  #firstDraws = 0;
  #arrived = 0;
  #passes = 0;
  #version = 0;
  #paused = false;
  #looping: Promise<void> | undefined;
  /** Something happened while the loop was on its way out. */
  #again = false;

  constructor(decoder: SlotDecoder, options: RolloutOptions = {}) {
    this.#decoder = decoder;
    this.#readers = new Readers(decoder.vocabSize, options.vocabulary);
    this.#speculation = options.speculative && new Speculation(options.speculative);
    this.#table = new SlotTable(decoder.sizes);
    this.#preemption = options.preemption ?? 'parked';
  }

  generate(request: GenerateRequest): Promise<Generation> {
    return new Promise((resolve, reject) => {
      const { requestId } = request;
      if (this.#jobs.has(requestId))
        throw new Error(`generate("${requestId}") while its last turn is still generating.`);
      checkRequest(request, this.#decoder.sizes, this.#decoder.vocabSize);
      const readers = this.#readers.of(request);
      const arrival = this.#arrivals.get(requestId) ?? this.#arrived++;
      this.#arrivals.set(requestId, arrival);
      const job = newJob(bounded(request, this.#decoder.sizes.slotCapacity), arrival, readers, resolve, reject);
      this.#jobs.set(requestId, job);
      const { contextIds, promptLength } = request;
      this.#speculation?.drafts.open(
        requestId,
        contextIds.subarray(0, promptLength),
        contextIds.subarray(promptLength),
      );
      this.#enqueue(job);
      this.#wake();
    });
  }

  release(requestId: string): void {
    if (this.#jobs.has(requestId)) throw new Error(`release("${requestId}") while it is generating; abort it first.`);
    this.#arrivals.delete(requestId);
    this.#table.drop(requestId);
    this.#speculation?.drafts.close(requestId);
    this.#wake();
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) {
      const job = this.#jobs.get(id);
      if (!job) continue;
      job.aborted = true;
      if (job.phase === 'waiting') this.#answer(job, 'aborted');
    }
    this.#waiting = this.#waiting.filter((job) => !job.aborted);
  }

  resetCache(): void | Promise<void> {
    if (this.#running.size > 0) return this.#resetRunning();
    this.#decoder.weightsChanged();
    this.#table.reset();
    this.#version++;
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
    const stats = {
      ...this.#stats,
      wastedRows: this.#stats.liveRows - (this.#stats.generatedTokens - this.#firstDraws),
    };
    this.#stats = emptyStats();
    this.#firstDraws = 0;
    return stats;
  }

  #enqueue(job: Job): void {
    let at = this.#waiting.length;
    while (at > 0 && this.#waiting[at - 1].arrival > job.arrival) at--;
    this.#waiting.splice(at, 0, job);
  }

  #wake(): void {
    this.#again = true;
    if (this.#paused || this.#looping) return;
    this.#looping = this.#loop()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#looping = undefined;
        if (this.#again && this.#jobs.size > 0) this.#wake();
      });
  }

  /** A device error reaches everyone who waits. */
  #fail(error: unknown): void {
    for (const { reject } of this.#jobs.values()) reject(error);
    this.#jobs.clear();
    this.#running.clear();
    this.#waiting = [];
  }

  async #loop(): Promise<void> {
    await this.#gatherBurst();
    while (!this.#paused && this.#jobs.size > 0) {
      this.#again = false;
      await this.#admit(PARKED_PASSES);
      if (this.#running.size === 0) {
        await nextTask(); // whoever has just been answered may release its slot, or take its next turn
        await this.#admit(0);
      }
      if (this.#running.size === 0) return; // all slots are held by samples that wait for something else
      this.#passes++;
      const started = performance.now();
      const before = { prefill: this.#stats.prefillTokens, decode: this.#stats.liveRows };
      const drawing = new Set([...this.#running].filter((r) => r.phase === 'decode'));
      const prefilled = this.#prefillPass();
      if (prefilled) this.#decoder.submit();
      const steps = this.#decodeSteps();
      const state = await this.#decoder.readState();
      const ended = performance.now();
      if (!prefilled && steps > 0) this.#pace.learnTime(ended - started, steps);
      const { prefillTokens, liveRows } = this.#stats;
      const decodeRows = liveRows - before.decode + (this.#speculation?.rowsVerified() ?? 0);
      this.#notePass({ started, ended, prefillRows: prefillTokens - before.prefill, decodeRows }, drawing);
      const drawn = await this.#collect(state, steps);
      if (!prefilled)
        this.#speculation?.learnPass(steps === 0 ? 'verify' : 'plain', performance.now() - started, drawn);
    }
  }

  /** Tells running jobs what the pass took; `drawing` had been prefilled before it. */
  #notePass(pass: PassTimes, drawing: ReadonlySet<Running>): void {
    const { gpuTimes } = this.#decoder;
    const times = gpuTimes ? { ...pass, gpu: gpuTimes } : pass;
    for (const job of this.#running) job.clock?.pass(times, job.phase === 'decode' && !drawing.has(job));
  }

  /** Requests of one step arrive as separate messages; starting on the first alone would waste a pass. */
  async #gatherBurst(): Promise<void> {
    let seen = -1;
    while (seen !== this.#waiting.length) {
      seen = this.#waiting.length;
      await nextTask();
    }
  }

  /** Gives waiting jobs their slots and prefixes, first come first served, preempting where the policy says so. */
  async #admit(grace: number): Promise<void> {
    const victims = this.#parkedVictims(grace);
    for (const job of [...this.#waiting]) {
      while (job.phase === 'waiting' && !job.aborted && !this.#tryStart(job)) {
        if (victims.length > 0) this.#evict(victims.shift()!);
        else if (!(await this.#preemptFor(job))) break;
      }
    }
    this.#waiting = this.#waiting.filter((job) => job.phase === 'waiting');
  }

  #tryStart(job: Job): boolean {
    const { requestId, promptLength, key, sampling } = job.request;
    const sequence = this.#table.acquire(requestId, job.contextIds.subarray(0, promptLength));
    if (!sequence) return false;
    const own = job.contextIds.subarray(promptLength);
    const known = commonLength(own, sequence.ownTokens);
    // The last context token is always run again: its row gives the logits of the first draw.
    job.next = Math.min(known, Math.max(0, own.length - 1));
    job.phase = 'prefill';
    job.clock?.enter('prefill');
    sequence.ownTokens = [...own];
    sequence.parkedAt = undefined;
    this.#stats.cachedTokens += job.next;
    this.#decoder.setSlot(sequence.slot, {
      prefixStart: this.#decoder.prefixStart(sequence.prefix.index),
      promptLength,
      ownStart: this.#decoder.ownStart(sequence.slot),
      contextIds: job.contextIds,
      drawnBefore: job.contextIds.length - job.request.contextIds.length,
      key,
      sampling,
    });
    this.#running.add(Object.assign(job, { sequence }));
    return true;
  }

  /** Samples whose last turn ended at least `grace` passes ago, latest arrived first. */
  #parkedVictims(grace: number): string[] {
    if (this.#preemption === 'off' || this.#waiting.length === 0 || this.#table.freeSlots > 0) return [];
    const before = this.#passes - grace;
    const parked = this.#table.parked().filter(({ id, since }) => since <= before && !this.#jobs.has(id));
    return parked.map(({ id }) => id).sort((a, b) => this.#arrivals.get(b)! - this.#arrivals.get(a)!);
  }

  #evict(requestId: string): void {
    this.#table.drop(requestId);
    this.#stats.preemptions++;
  }

  /** Takes the slot of the latest running sample that arrived after this one; false if there is none. */
  async #preemptFor(job: Job): Promise<boolean> {
    if (this.#preemption !== 'latest') return false;
    const latest = [...this.#running].reduce<Running | undefined>(
      (last, r) => (r.arrival > (last?.arrival ?? job.arrival) ? r : last),
      undefined,
    );
    if (!latest) return false;
    this.#stats.preemptions++;
    await this.#sendBack([latest]);
    return true;
  }

  /** Puts running jobs back to waiting: they keep what they have drawn, and lose their slots. */
  async #sendBack(jobs: Running[]): Promise<void> {
    const drawing = jobs.filter((job) => job.phase === 'decode');
    await this.#keepDrawn(drawing);
    for (const job of jobs) {
      this.#running.delete(job);
      this.#table.drop(job.request.requestId);
      job.phase = 'waiting';
      job.clock?.enter('queue');
      if (job.aborted) this.#answer(job, 'aborted');
      else this.#enqueue(job);
    }
  }

  async #resetRunning(): Promise<void> {
    const wasPaused = this.#paused;
    await this.pause();
    await this.#sendBack([...this.#running]);
    await this.resetCache();
    if (!wasPaused) this.resume();
  }

  /** Records one pass over new context tokens, at most maxBatchedTokens of them; false if there were none. */
  #prefillPass(): boolean {
    const pending = [...this.#running].filter((r) => r.phase === 'prefill');
    if (pending.length === 0) return false;
    const { rows, draws, ready } = planPrefill(this.#decoder, pending, this.#stats);
    if (rows.tokens.length === 0) throw new Error('A prefill pass has no rows; the scheduler cannot make progress.');
    for (const job of ready) job.phase = 'decode';
    this.#maskCalls(ready);
    this.#decoder.prefill(rows, draws);
    this.#stats.prefillTokens += rows.tokens.length;
    this.#stats.generatedTokens += draws.length;
    this.#firstDraws += draws.length;
    return true;
  }

  /** Records as many decode steps as pay before the next look at the flags. Returns how many. */
  #decodeSteps(): number {
    const live = [...this.#running].filter((r) => r.phase === 'decode' && this.#isReady(r));
    if (live.length === 0) return 0;
    this.#maskCalls(live);
    if (this.#verifyPass(live)) return 0;
    // Neighbours in a batch that share a prompt read the same keys.
    live.sort((a, b) => a.sequence.prefix.index - b.sequence.prefix.index || a.sequence.slot - b.sequence.slot);
    this.#decoder.setLive(live.map((r) => r.sequence.slot));
    const most = live.some((job) => job.guided) ? 1 : this.#speculation ? STEPS_BETWEEN_GUESSES : Infinity;
    const steps = Math.min(this.#pace.steps(live.map(tokensLeft)), most);
    for (let s = 0; s < steps; s++) {
      this.#decoder.decodeStep();
      if (s === 0 && steps > 1) this.#decoder.submit(); // the device starts while the others are recorded
    }
    this.#stats.decodeSteps += steps;
    this.#stats.liveRows += steps * live.length;
    return steps;
  }

  /** Who must know its last token before the next sits the pass out that has drawn its first: nobody has read it yet. */
  #isReady(job: Running): boolean {
    return job.known.length > 0 || !(this.#speculation || job.guided);
  }

  /** Says what the next draw may be where a tool call has to stay valid. */
  #maskCalls(jobs: Running[]): void {
    for (const job of jobs) {
      const { guided, sequence } = job;
      if (guided) this.#decoder.setMask(sequence.slot, guided.guide.mask(guided.state, tokensLeft(job)));
    }
  }

  /** Records a pass that checks guesses; false where there are none, or too few. */
  #verifyPass(live: Running[]): boolean {
    const room = this.#decoder.sizes.verifyRows ?? this.#decoder.sizes.maxSlots;
    const planned = this.#speculation?.plan(live, this.#decoder, room);
    if (!planned) return false;
    this.#decoder.verify(planned.rows, planned.rounds);
    this.#stats.decodeSteps++;
    return true;
  }

  /** Hands back every sequence that stopped, was aborted, or is full. Returns how many tokens were drawn. */
  async #collect(state: Uint32Array, steps: number): Promise<number> {
    const flagOf = ({ sequence }: Running) => state[sequence.slot * STATE_WIDTH + 3];
    const live = [...this.#running].filter((r) => r.phase === 'decode');
    let drawn = 0;
    for (const job of live) {
      const now = state[job.sequence.slot * STATE_WIDTH + 2];
      drawn += now - job.drawn;
      job.drawn = now;
    }
    await this.#readAlong(live.filter((job) => looksAtTokens(job) || this.#speculation));
    const ended = live.filter((job) => flagOf(job) !== 0 || job.stopString !== undefined || job.aborted);
    this.#pace.learnEnds(ended.length, live.length, steps);
    await this.#keepDrawn(ended);
    for (const job of ended) {
      job.sequence.parkedAt = this.#passes;
      this.#running.delete(job);
      const reason = flagOf(job) === 1 ? 'stop' : flagOf(job) === 2 ? 'length' : 'aborted';
      this.#answer(job, job.stopString === undefined ? reason : 'stop_string');
    }
    await this.#sendBack([...this.#running].filter((r) => r.phase === 'prefill' && r.aborted));
    return drawn;
  }

  /** Shows jobs what they have drawn since they last looked. */
  async #readAlong(jobs: Running[]): Promise<void> {
    if (jobs.length === 0) return;
    const parts = jobs.map(({ sequence: { slot }, known, drawn }) => {
      return { slot, from: known.length, count: drawn - known.length };
    });
    const drawn = await this.#decoder.readDrawn(parts);
    jobs.forEach((job, i) => {
      const before = job.known.length;
      readAlong(job, drawn[i].tokenIds);
      job.request.onTokens?.(job.known.slice(before));
      this.#speculation?.learn(job, before, drawn[i].tokenIds.length, this.#stats);
    });
    this.#speculation?.passEnded();
  }

  /** Reads what jobs have drawn since they got their slots. */
  async #keepDrawn(jobs: Running[]): Promise<void> {
    if (jobs.length === 0) return;
    const drawn = await this.#decoder.readDrawn(jobs.map(({ sequence: { slot }, drawn: count }) => ({ slot, count })));
    jobs.forEach((job, i) => {
      const { tokenIds } = drawn[i];
      this.#stats.generatedTokens += tokenIds.length - 1; // the first was counted by the prefill pass
      // Every drawn token but the last has been fed, so its keys and values are in the slot.
      for (const id of tokenIds.subarray(0, -1)) job.sequence.ownTokens.push(id);
      keepPiece(job, drawn[i], this.#version);
    });
  }

  #answer(job: Job, stopReason: Generation['stopReason']): void {
    this.#jobs.delete(job.request.requestId);
    job.resolve(generationOf(job, stopReason));
  }
}

/** The server on our own kernels. */
export class WgslRolloutEngine extends RolloutServer {
  constructor(gpu: Gpu, model: LlamaModel, sizes: DecoderSizes, options: RolloutOptions = {}) {
    super(new Decoder(gpu, model, sizes), options);
  }
}

function commonLength(a: Uint32Array, b: number[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

function emptyStats(): RolloutStats {
  const tokens = { generatedTokens: 0, prefillTokens: 0, cachedTokens: 0 };
  const guesses = { draftTokens: 0, acceptedTokens: 0, verifications: 0 };
  return { ...tokens, ...guesses, decodeSteps: 0, wastedRows: 0, liveRows: 0, preemptions: 0 };
}
