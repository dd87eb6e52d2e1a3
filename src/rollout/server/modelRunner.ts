/**
 * Runs passes on the decoder and tracks the passes in flight. Chooses the number of decode steps per pass from the cost of earlier passes.
 */

import { ChunkLength } from './chunkLength.ts';
import type { Job, RunningJob } from './job.ts';
import type { Pass, FinishedPass } from './pass.ts';
import { planPrefill } from './prefill.ts';
import type { SlotDecoder } from './slotDecoder.ts';
import type { ServerStats } from './stats.ts';
import type { DecodePlan, TokenSource } from './tokenSource.ts';

/**
 * 'on' starts a pass before the last one was read, so that the device never waits for the host. A sequence that has ended in the meantime
 * then computes one pass in vain and is answered one pass later. 'auto' does so only if that costs less than the wait. 'off' never does.
 */
export type AsyncScheduling = 'auto' | 'on' | 'off';

export interface PassOptions {
  asyncScheduling: AsyncScheduling;
  /** True to schedule by counts alone: ignores how long passes take, and clears the estimates at each pause. */
  repeatable: boolean;
}

/** Starts passes of the decoder, and reads their results. */
export class ModelRunner {
  readonly #decoder: SlotDecoder;
  readonly #tokenSource: TokenSource;
  readonly #options: PassOptions;
  readonly #stats: ServerStats;
  #chunk = new ChunkLength();
  /** Passes that were started and whose results are not yet read, oldest first. */
  #inFlight: Pass[] = [];
  /** Time at which the last pass ended (performance.now), and true if no sequence ended in it. Undefined after a pause. */
  #lastPass: { endedAt: number; nothingEnded: boolean } | undefined;

  constructor(decoder: SlotDecoder, tokenSource: TokenSource, options: PassOptions, stats: ServerStats) {
    this.#decoder = decoder;
    this.#tokenSource = tokenSource;
    this.#options = options;
    this.#stats = stats;
  }

  get passesInFlight(): number {
    return this.#inFlight.length;
  }

  /** Records and submits a pass of the jobs. Returns false without a pass if the one in flight samples all remaining tokens. */
  startPass(running: ReadonlySet<RunningJob>): boolean {
    const startedAt = performance.now();
    const wereDecoding = new Set(inPhase(running, 'decode'));
    const prefillRows = this.#prefill(inPhase(running, 'prefill'));
    if (prefillRows > 0) this.#decoder.submit(); // the device starts while the decode steps are recorded
    const prefilledAt = performance.now();
    const { steps, rows: decodeRows } = this.#decode(inPhase(running, 'decode').filter((job) => this.#mayDecode(job)));
    if (this.passesInFlight > 0 && prefillRows + decodeRows === 0) return false;
    const firstStepAt = startedAt + (performance.now() - startedAt) / Math.max(1, steps);
    this.#learnWait(prefillRows > 0 ? prefilledAt : firstStepAt, prefillRows);
    // A prefill pass also samples the first token.
    const tokensOf = (job: RunningJob) => (wereDecoding.has(job) ? steps : steps + 1);
    const decoding = inPhase(running, 'decode').map((job) => ({ job, tokens: tokensOf(job) }));
    for (const { job, tokens } of decoding) job.tokensInFlight += tokens;
    const stateRead = this.#decoder.readState();
    stateRead.catch(() => {}); // readPass reports it, unless an earlier pass has also failed
    const prefilling = inPhase(running, 'prefill');
    this.#inFlight.push({
      decoding,
      wereDecoding,
      prefilling,
      prefillRows,
      decodeRows,
      steps,
      startedAt,
      stateRead,
    });
    return true;
  }

  /** True if the next pass may start before the last one was read (asynchronous scheduling). */
  mayStartAhead(running: ReadonlySet<RunningJob>): boolean {
    const { asyncScheduling, repeatable } = this.#options;
    if (asyncScheduling === 'off') return false;
    if ([...running].some((job) => this.#tokenSource.needsLastToken(job))) return false;
    if (asyncScheduling === 'on') return true;
    return repeatable ? !this.#decoder.isSoftware : this.#chunk.paysToStartAhead(this.#decoder.isSoftware);
  }

  /** Waits for the oldest pass in flight and reads the slots' states. */
  async readPass(): Promise<FinishedPass> {
    const pass = this.#inFlight.shift()!;
    const { state, gpuTimes } = await pass.stateRead;
    const ended = performance.now();
    // A pass that was submitted before the previous one ended has started only when that one ended, because the device was busy until then.
    const started = Math.max(pass.startedAt, this.#lastPass?.endedAt ?? 0);
    const { prefillRows, decodeRows } = pass;
    return { ...pass, state, times: { started, ended, prefillRows, decodeRows, ...(gpuTimes && { gpu: gpuTimes }) } };
  }

  /**
   * Updates the estimates from a pass that sampled `drawn` tokens of `live` sequences, `ended` of which ended in it.
   */
  learn(pass: FinishedPass, { drawn, live, ended }: { drawn: number; live: number; ended: number }): void {
    const { steps, prefillRows, startedAt, times } = pass;
    this.#lastPass = { endedAt: times.ended, nothingEnded: ended === 0 };
    this.#chunk.learnEnds(ended, live, steps);
    if (prefillRows > 0 || this.#options.repeatable) return;
    if (steps > 0) this.#chunk.learnTime(times.ended - times.started, steps);
    this.#tokenSource.passFinished(steps > 0 ? 'steps' : 'draft', performance.now() - startedAt, drawn);
  }

  /** Forgets the passes in flight and the end time of the last one. Called if the server pauses or the device has failed. */
  reset(): void {
    this.#inFlight = [];
    this.#lastPass = undefined;
    if (this.#options.repeatable) this.#chunk = new ChunkLength();
  }

  /** Records new context tokens, at most maxBatchedTokens, and the sampling of the first token of each complete context. */
  #prefill(jobs: RunningJob[]): number {
    if (jobs.length === 0) return 0;
    const { rows, draws, ready, cachedTokens } = planPrefill(this.#decoder, jobs);
    if (rows.tokens.length === 0) throw new Error('A prefill pass has no rows; the scheduler cannot make progress.');
    for (const job of ready) job.phase = 'decode';
    this.#tokenSource.setMasks(ready);
    this.#decoder.prefill(rows, draws);
    this.#stats.addCached(cachedTokens);
    this.#stats.addPrefill(rows.tokens.length, draws.length);
    return rows.tokens.length;
  }

  /** Records as many decode steps as are worthwhile before the next read-back, or one pass that checks guessed tokens. */
  #decode(jobs: RunningJob[]): { steps: number; rows: number } {
    if (jobs.length === 0) return { steps: 0, rows: 0 };
    const { maxSteps, draft } = this.#tokenSource.plan(jobs);
    if (draft) return this.#verify(draft);
    const left = jobs.map((job) => job.tokensLeft);
    const steps = Math.min(maxSteps, this.#chunk.next(left, this.passesInFlight > 0));
    // Jobs that share a prompt are adjacent in the batch, so that they read the same keys.
    jobs.sort((a, b) => a.cached.prefix.index - b.cached.prefix.index || a.cached.slot - b.cached.slot);
    this.#decoder.setLive(jobs.map((job) => job.cached.slot));
    for (let step = 0; step < steps; step++) {
      this.#decoder.decodeStep();
      if (step === 0 && steps > 1) this.#decoder.submit(); // the device starts while the others are recorded
    }
    this.#stats.addDecode(steps, jobs.length);
    return { steps, rows: steps * jobs.length };
  }

  #verify({ rows, rounds }: NonNullable<DecodePlan['draft']>): { steps: number; rows: number } {
    this.#decoder.verify(rows, rounds);
    this.#stats.addDecode(1, 0); // its rows are counted once the number of sampled tokens is known
    return { steps: 0, rows: rows.tokens.length };
  }

  /**
   * True if the job can sample in this pass. If its next token depends on its last one, the job waits for one pass after prefill, until the
   * host has read its first token.
   */
  #mayDecode(job: RunningJob): boolean {
    return job.tokensLeft > 0 && (job.hostTokens.length > 0 || !this.#tokenSource.needsLastToken(job));
  }

  /** Records that the device received work at `startedAt`, for which it had waited since the end of the last pass. */
  #learnWait(startedAt: number, prefillRows: number): void {
    if (!this.#lastPass || this.#options.repeatable) return;
    this.#chunk.learnWait(startedAt - this.#lastPass.endedAt, this.#lastPass.nothingEnded && prefillRows === 0);
  }
}

function inPhase(running: ReadonlySet<RunningJob>, phase: Job['phase']): RunningJob[] {
  return [...running].filter((job) => job.phase === phase);
}
