/** Speculative decoding: guesses the next tokens of each sequence and checks all guesses in one pass, if that is faster. */

import type { Job, RunningJob } from '../../rollout/server/job.ts';
import type { SlotDecoder } from '../../rollout/server/slotDecoder.ts';
import {
  type DecodePlan,
  SampledTokens,
  type SpeculativeOptions,
  type TokenSource,
} from '../../rollout/server/tokenSource.ts';
import type { GenerateRequest } from '../../rollout/types.ts';
import { fitDrafts, layOutDrafts } from './draftRows.ts';
import { NgramProposer } from './ngramProposer.ts';
import { SpeculationGate } from './speculationGate.ts';

/** Number of decode steps until the next read-back if no guesses are checked. After it, new guesses can be made. */
const STEPS_BETWEEN_DRAFTS = 4;
/** Mean number of guesses per sequence that a pass must exceed. With fewer guesses, it costs more than decode steps. */
const LEAST_GUESSES = 0.25;

/** A TokenSource that adds guesses to the plans of another TokenSource. */
export class DraftedTokens implements TokenSource {
  readonly #decoder: SlotDecoder;
  readonly #proposer: NgramProposer;
  readonly #sampled: SampledTokens;
  /** Decides whether guesses are checked. Undefined: always. */
  readonly #gate: SpeculationGate | undefined;
  /** Guesses of each job that the pass in flight checks. */
  readonly #drafts = new WeakMap<Job, number[]>();

  constructor(decoder: SlotDecoder, options: SpeculativeOptions) {
    this.#decoder = decoder;
    this.#proposer = new NgramProposer(options);
    this.#sampled = new SampledTokens(decoder);
    this.#gate = options.adapt ? new SpeculationGate() : undefined;
  }

  open({ requestId, contextIds, promptLength }: GenerateRequest): void {
    this.#proposer.open(requestId, contextIds.subarray(0, promptLength), contextIds.subarray(promptLength));
  }

  close(requestId: string): void {
    this.#proposer.close(requestId);
  }

  /** Always true: guesses continue from the last token, so the host must have read that token before it can make them. */
  needsLastToken(): boolean {
    return true;
  }

  setMasks(jobs: readonly RunningJob[]): void {
    this.#sampled.setMasks(jobs);
  }

  plan(jobs: readonly RunningJob[]): DecodePlan {
    const { maxSteps } = this.#sampled.plan(jobs);
    const { verifyRows, maxNumSeqs } = this.#decoder.sizes;
    const guesses = jobs.map((job) => this.#propose(job));
    const drafts = fitDrafts(guesses, verifyRows ?? maxNumSeqs);
    if (drafts.flat().length <= LEAST_GUESSES * jobs.length || this.#gate?.isOpen() === false)
      return { maxSteps: Math.min(maxSteps, STEPS_BETWEEN_DRAFTS) };
    jobs.forEach((job, i) => this.#drafts.set(job, drafts[i]));
    return { maxSteps: 0, draft: layOutDrafts(this.#decoder, jobs, drafts) };
  }

  accept(job: RunningJob, from: number): { guessed: number; accepted: number } | undefined {
    const { requestId } = job.request;
    const drawn = job.hostTokens.slice(from);
    this.#proposer.push(requestId, drawn);
    const draft = this.#drafts.get(job);
    if (!draft) return undefined;
    this.#drafts.delete(job);
    const wrong = draft.findIndex((token, i) => drawn[i] !== token);
    const accepted = wrong < 0 ? draft.length : wrong;
    if (draft.length > 0) this.#proposer.learn(requestId, draft.length, accepted);
    return { guessed: draft.length, accepted };
  }

  passFinished(kind: 'draft' | 'steps', milliseconds: number, drawn: number): void {
    this.#gate?.learn(kind, milliseconds, drawn);
  }

  /** Returns guesses for a job, up to a stop token, the length limit, or the first token that a constrained tool call forbids. */
  #propose(job: RunningJob): number[] {
    const { requestId, sampling } = job.request;
    const proposed = this.#proposer.propose(requestId, job.tokensLeft - 1);
    const stop = proposed.findIndex((token) => sampling.stopTokenIds.includes(token));
    const guesses = stop < 0 ? proposed : proposed.slice(0, stop);
    return job.guide ? guesses.slice(0, job.guide.masks(guesses, job.tokensLeft).length - 1) : guesses;
  }
}
