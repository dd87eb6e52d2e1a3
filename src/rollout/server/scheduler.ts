/**
 * Decides what is computed next, like the schedulers of vLLM and nano-vllm. Waiting requests get slots. Each pass computes new contexts
 * (prefill) and samples the next tokens of all running sequences (decode). Requests whose sequences have ended are answered.
 *
 * The schedule does not change tokens. The tokens of a sample depend on its key, its context and the weights (kernels/sample.wgsl), not on
 * the other samples in its batch and not on preemptions.
 */

import { nextTask } from '../agent/yield.ts';
import { slotState } from '../decode/draws.ts';
import type { DrawnSoFar, Generation, RolloutStats } from '../types.ts';
import type { Job, RunningJob } from './job.ts';
import { KvCacheManager } from './kvCache.ts';
import { ModelRunner, type Pass } from './modelRunner.ts';
import type { SlotDecoder } from './slotDecoder.ts';
import { ServerStats } from './stats.ts';
import type { TokenSource } from './tokenSource.ts';

/**
 * Samples that can lose their slot while another one waits, latest arrival first. 'parked': samples that are between two turns because
 * their tool takes long. 'latest': in addition, a running sample, if the waiting one arrived earlier. 'off': no sample.
 */
export type Preemption = 'off' | 'parked' | 'latest';

/**
 * Treatment of the cached keys and values of samples in flight when the weights change. 'recompute': their contexts are computed again with
 * the new weights. 'keep': new tokens attend to keys and values of the old weights, like vLLM's `pause_generation(mode="keep")`.
 */
export type KvCachePolicy = 'recompute' | 'keep';

/** Number of passes for which a sample between two turns keeps its slot while other samples wait. */
const PARKED_PASSES = 4;

/** Owns the waiting and running jobs, and runs the server one step at a time. */
export class Scheduler {
  /** Jobs without a slot, in order of arrival. */
  waiting: Job[] = [];
  /** Jobs with a slot. Each pass prefills their contexts or samples their next tokens. */
  readonly running = new Set<RunningJob>();
  readonly #decoder: SlotDecoder;
  readonly #tokenSource: TokenSource;
  readonly #preemption: Preemption;
  readonly #kvCache: KvCachePolicy;
  readonly #runner: ModelRunner;
  readonly #cache: KvCacheManager;
  readonly #stats = new ServerStats();
  /** Waiting and running jobs. */
  readonly #jobs = new Map<string, Job>();
  /** Arrival number of each sample, stored from its first request to its release. */
  readonly #arrivals = new Map<string, number>();
  #arrived = 0;
  #passCount = 0;
  /** Version of the weights: the one that `weightsChanged` received, or the number of weight changes. */
  #weightVersion = 0;

  constructor(
    decoder: SlotDecoder,
    tokenSource: TokenSource,
    { preemption, kvCache, repeatable }: { preemption: Preemption; kvCache: KvCachePolicy; repeatable: boolean },
  ) {
    this.#decoder = decoder;
    this.#tokenSource = tokenSource;
    this.#preemption = preemption;
    this.#kvCache = kvCache;
    this.#runner = new ModelRunner(decoder, tokenSource, repeatable, this.#stats);
    this.#cache = new KvCacheManager(decoder.sizes);
  }

  /**
   * Runs one step in nano-vllm's order: schedule, run, postprocess. Returns false if no job can run until a sample is released or requests
   * its next turn.
   */
  async step(): Promise<boolean> {
    if (!(await this.#schedule())) return false;
    this.#passCount++;
    await this.#postprocess(await this.#runner.run(this.running));
    return true;
  }

  /** Called if no step follows for now. */
  pause(): void {
    this.#runner.pause();
  }

  // Methods on single requests.

  get hasUnfinished(): boolean {
    return this.#jobs.size > 0;
  }

  isUnfinished(requestId: string): boolean {
    return this.#jobs.has(requestId);
  }

  add(job: Job): void {
    const { requestId } = job.request;
    job.arrival = this.#arrivals.get(requestId) ?? this.#arrived++;
    this.#arrivals.set(requestId, job.arrival);
    this.#jobs.set(requestId, job);
    this.#tokenSource.open({ ...job.request, contextIds: job.contextIds });
    this.#enqueue(job);
  }

  /** Aborts a request. A waiting job is answered immediately, a running one after its pass. */
  abort(requestId: string): void {
    const job = this.#jobs.get(requestId);
    if (!job) return;
    job.aborted = true;
    if (job.phase !== 'waiting') return;
    this.waiting = this.waiting.filter((other) => other !== job);
    this.#answer(job, 'aborted');
  }

  /** Frees the slot of a finished sample. */
  release(requestId: string): void {
    this.#arrivals.delete(requestId);
    this.#cache.free(requestId);
    this.#tokenSource.close(requestId);
  }

  /**
   * Fails every job, for example if the device is lost. The cache lacks what the failed passes should have computed, so
   * it is cleared.
   */
  fail(error: unknown): void {
    for (const job of this.#jobs.values()) job.fail(error);
    this.#jobs.clear();
    this.running.clear();
    this.waiting = [];
    this.pause();
    this.#cache.reset();
  }

  /**
   * Called after the weights have changed. Clears the cached keys and values: all, or with 'keep' only those that no sample uses. No pass
   * may be running.
   */
  weightsChanged(weightVersion = this.#weightVersion + 1): void {
    this.#decoder.weightsChanged();
    if (this.#kvCache === 'keep') this.#cache.keepSequences();
    else this.#cache.reset();
    this.#weightVersion = weightVersion;
  }

  /** Returns the sampled tokens of each of these requests, and clears the cache. No pass may be running. */
  takeDrawn(requestIds: string[]): (DrawnSoFar | undefined)[] {
    this.#cache.reset();
    return requestIds.map((id) => this.#jobs.get(id)?.drawnSoFar);
  }

  takeStats(): RolloutStats {
    return this.#stats.take();
  }

  // Schedule: jobs move from waiting to running, and back.

  /** Assigns slots to waiting jobs. Returns false if no job runs afterwards. */
  async #schedule(): Promise<boolean> {
    await this.#admit(PARKED_PASSES);
    if (this.running.size > 0) return true;
    await nextTask(); // answered samples can request their next turn or release their slots
    await this.#admit(0);
    return this.running.size > 0;
  }

  /**
   * Admits waiting jobs, first come first served. Samples that have been parked for `parkedPasses` passes can lose their slots to these
   * jobs.
   */
  async #admit(parkedPasses: number): Promise<void> {
    const parked = this.#preemptible(parkedPasses);
    for (const job of [...this.waiting]) {
      while (job.phase === 'waiting' && !job.aborted && !this.#tryStart(job)) {
        if (parked.length > 0) this.#preemptParked(parked.shift()!);
        else if (!(await this.#preemptLaterThan(job))) break;
      }
    }
    this.waiting = this.waiting.filter((job) => job.phase === 'waiting');
  }

  /**
   * Assigns a slot to the job and configures it in the decoder. Returns false if no slot or no space for the prompt is
   * free.
   */
  #tryStart(job: Job): boolean {
    const { contextIds, drawnBefore } = job;
    const { requestId, promptLength, key, sampling } = job.request;
    const ownTokens = contextIds.subarray(promptLength);
    const allocated = this.#cache.allocate(requestId, contextIds.subarray(0, promptLength), ownTokens);
    if (!allocated) return false;
    const { cached, computed } = allocated;
    // The last context token is always computed again, because the logits of its row are those of the first sampled token.
    const running = job.start(cached, Math.min(computed, Math.max(0, ownTokens.length - 1)));
    const prefixStart = this.#decoder.prefixStart(cached.prefix.index);
    const ownStart = this.#decoder.ownStart(cached.slot);
    const setup = { prefixStart, promptLength, ownStart, contextIds, drawnBefore, key, sampling };
    this.#decoder.setSlot(cached.slot, setup);
    this.#stats.addCached(running.computedTokens);
    this.running.add(running);
    return true;
  }

  /** Moves these running jobs back to waiting. They keep their sampled tokens and lose their slots. */
  async preempt(jobs: RunningJob[]): Promise<void> {
    await this.#interrupt(jobs);
    for (const job of jobs) this.#cache.free(job.request.requestId);
  }

  /** Moves all running jobs back to waiting, for a change of weights. */
  async interrupt(): Promise<void> {
    const jobs = [...this.running];
    if (this.#kvCache === 'recompute') return this.preempt(jobs);
    for (const { phase, cached, computedTokens } of jobs)
      if (phase === 'prefill') cached.ownTokens.length = computedTokens; // later tokens are not in the slot yet
    await this.#interrupt(jobs);
  }

  async #interrupt(jobs: RunningJob[]): Promise<void> {
    await this.#keepDrawn(jobs.filter((job) => job.phase === 'decode'));
    for (const job of jobs) {
      this.running.delete(job);
      job.wait();
      if (job.aborted) {
        job.cached.parkedAt = this.#passCount;
        this.#answer(job, 'aborted');
      } else this.#enqueue(job);
    }
  }

  /** Preempts the running job that arrived last, if it arrived after `job`. Otherwise returns false. */
  async #preemptLaterThan(job: Job): Promise<boolean> {
    if (this.#preemption !== 'latest') return false;
    let latest: RunningJob | undefined;
    for (const other of this.running) if (other.arrival > (latest ?? job).arrival) latest = other;
    if (!latest) return false;
    this.#stats.addPreemption();
    await this.preempt([latest]);
    return true;
  }

  /** Frees the slot of a sample that is between two turns. */
  #preemptParked(requestId: string): void {
    this.#stats.addPreemption();
    this.#cache.free(requestId);
  }

  /** Returns the samples that may lose their slots because their last turn ended at least `passes` passes ago, latest arrival first. */
  #preemptible(passes: number): string[] {
    if (this.#preemption === 'off' || this.waiting.length === 0 || this.#cache.freeSlots > 0) return [];
    const ids = this.#cache.parkedSince(this.#passCount - passes).filter((id) => !this.#jobs.has(id));
    return ids.sort((a, b) => this.#arrivals.get(b)! - this.#arrivals.get(a)!);
  }

  #enqueue(job: Job): void {
    const after = this.waiting.findIndex((other) => other.arrival > job.arrival);
    this.waiting.splice(after < 0 ? this.waiting.length : after, 0, job);
  }

  // Postprocess: handles the tokens of a pass, and answers the jobs that ended in it.

  async #postprocess(pass: Pass): Promise<void> {
    for (const { clock, phase } of this.running) clock?.pass(pass.times, phase === 'decode');
    const jobs = [...this.running].filter(({ phase }) => phase === 'decode');
    const drawn = this.#countDrawn(jobs, pass.state);
    await this.#readTokens(jobs);
    const ended = await this.#answerEnded(jobs, pass.state);
    this.#runner.learn(pass, { drawn, live: jobs.length, ended });
    await this.preempt([...this.running].filter((job) => job.phase === 'prefill' && job.aborted));
  }

  /** Updates the number of sampled tokens of each job. Returns the number of new tokens. */
  #countDrawn(decoding: RunningJob[], state: Uint32Array): number {
    let drawn = 0;
    for (const job of decoding) {
      const { drawnCount } = slotState(state, job.cached.slot);
      drawn += drawnCount - job.drawnCount;
      job.drawnCount = drawnCount;
    }
    return drawn;
  }

  /** Reads new tokens of those jobs whose tokens the host needs before they end. Tokens of all other jobs stay on the device. */
  async #readTokens(decoding: RunningJob[]): Promise<void> {
    const jobs = decoding.filter((job) => job.isWatched || this.#tokenSource.needsLastToken(job));
    if (jobs.length === 0) return;
    const unread = jobs.map(({ cached: { slot }, hostTokens: { length: from }, drawnCount }) => {
      return { slot, from, count: drawnCount - from };
    });
    const drawn = await this.#decoder.readDrawn(unread);
    jobs.forEach((job, i) => {
      const { tokenIds } = drawn[i];
      job.takeTokens(tokenIds);
      const checked = this.#tokenSource.accept(job, unread[i].from);
      if (checked) this.#stats.addVerification(tokenIds.length, checked.guessed, checked.accepted);
    });
  }

  /** Answers the jobs that stopped, reached their limit or were aborted. Their slots stay parked for the next turns of their samples. */
  async #answerEnded(jobs: RunningJob[], state: Uint32Array): Promise<number> {
    const reasons = new Map<RunningJob, Generation['stopReason']>();
    for (const job of jobs) {
      const { end } = slotState(state, job.cached.slot);
      const reason = job.stopString !== undefined ? 'stop_string' : (end ?? (job.aborted ? 'aborted' : undefined));
      if (reason) reasons.set(job, reason);
    }
    await this.#keepDrawn([...reasons.keys()]);
    for (const [job, reason] of reasons) {
      job.cached.parkedAt = this.#passCount;
      this.running.delete(job);
      this.#answer(job, reason);
    }
    return reasons.size;
  }

  /** Reads the tokens that jobs have sampled since they got their slots. */
  async #keepDrawn(jobs: RunningJob[]): Promise<void> {
    if (jobs.length === 0) return;
    const slots = jobs.map(({ cached: { slot }, drawnCount: count }) => ({ slot, count }));
    const drawn = await this.#decoder.readDrawn(slots);
    jobs.forEach((job, i) => {
      const { tokenIds } = drawn[i];
      this.#stats.addGenerated(tokenIds.length - 1); // the prefill pass counted the first
      // Every sampled token except the last one has been an input of the model, so its keys and values are in the slot.
      for (const id of tokenIds.subarray(0, -1)) job.cached.ownTokens.push(id);
      job.keepDrawn(drawn[i], this.#weightVersion);
    });
  }

  #answer(job: Job, stopReason: Generation['stopReason']): void {
    this.#jobs.delete(job.request.requestId);
    job.answer(stopReason);
  }
}
