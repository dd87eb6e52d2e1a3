/** Runs passes on the decoder. Chooses the number of decode steps per pass from the cost of earlier passes. */

import { ChunkLength } from './chunkLength.ts';
import type { Job, RunningJob } from './job.ts';
import { planPrefill } from './prefill.ts';
import type { SlotDecoder } from './slotDecoder.ts';
import type { ServerStats } from './stats.ts';
import type { DecodePlan, TokenSource } from './tokenSource.ts';
import type { PassTimes } from './turnClock.ts';

/** A pass over the model that has ended: prefill rows, then decode steps, then one read-back of the slots' states. */
export interface Pass {
  /** Number of decode steps; 0 if the pass only prefills or only checks guesses. */
  steps: number;
  /** [slots, STATE_WIDTH], see slotState. */
  state: Uint32Array;
  times: PassTimes;
}

/** Records passes of the decoder, and reads their results. */
export class ModelRunner {
  readonly #decoder: SlotDecoder;
  readonly #tokenSource: TokenSource;
  /** True to schedule by counts alone: ignores how long passes take, and clears the estimates at each pause. */
  readonly #repeatable: boolean;
  readonly #stats: ServerStats;
  #chunk = new ChunkLength();
  /** Time at which the last pass ended (performance.now). Undefined if a sequence ended in it, and after a pause. */
  #waitsSince: number | undefined;

  constructor(decoder: SlotDecoder, tokenSource: TokenSource, repeatable: boolean, stats: ServerStats) {
    this.#decoder = decoder;
    this.#tokenSource = tokenSource;
    this.#repeatable = repeatable;
    this.#stats = stats;
  }

  /** Runs a pass of the jobs and reads the slots' states. Jobs whose contexts are complete after it are then in phase 'decode'. */
  async run(running: ReadonlySet<RunningJob>): Promise<Pass> {
    const started = performance.now();
    const prefillRows = this.#prefill(inPhase(running, 'prefill'));
    if (prefillRows > 0) this.#decoder.submit(); // the device starts while the decode steps are recorded
    const { steps, rows: decodeRows } = this.#decode(inPhase(running, 'decode').filter((job) => this.#mayDecode(job)));
    if (prefillRows === 0) this.#learnWait(started + (performance.now() - started) / Math.max(1, steps));
    const { state, gpuTimes: gpu } = await this.#decoder.readState();
    return { steps, state, times: { started, ended: performance.now(), prefillRows, decodeRows, ...(gpu && { gpu }) } };
  }

  /**
   * Updates the estimates from a pass that sampled `drawn` tokens of `live` sequences, `ended` of which ended in it.
   */
  learn({ steps, times }: Pass, { drawn, live, ended }: { drawn: number; live: number; ended: number }): void {
    this.#waitsSince = ended === 0 ? times.ended : undefined;
    this.#chunk.learnEnds(ended, live, steps);
    if (times.prefillRows > 0 || this.#repeatable) return;
    if (steps > 0) this.#chunk.learnTime(times.ended - times.started, steps);
    this.#tokenSource.passFinished(steps > 0 ? 'steps' : 'draft', performance.now() - times.started, drawn);
  }

  /** Called if no pass follows for now: the server pauses, has no work, or the device has failed. */
  pause(): void {
    this.#waitsSince = undefined;
    if (this.#repeatable) this.#chunk = new ChunkLength();
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
    const steps = Math.min(maxSteps, this.#chunk.next(jobs.map((job) => job.tokensLeft)));
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

  /** False if the host must read the job's first token, which this pass samples, before the next one is sampled. */
  #mayDecode(job: RunningJob): boolean {
    return job.hostTokens.length > 0 || !this.#tokenSource.needsLastToken(job);
  }

  /** Records that the device received decode steps at `startedAt`, for which it had waited since the end of the last pass. */
  #learnWait(startedAt: number): void {
    if (this.#waitsSince === undefined || this.#repeatable) return;
    this.#chunk.learnWait(startedAt - this.#waitsSince);
  }
}

function inPhase(running: ReadonlySet<RunningJob>, phase: Job['phase']): RunningJob[] {
  return [...running].filter((job) => job.phase === phase);
}
