/**
 * Decides which tokens a sequence may draw in the next pass. The scheduler asks a TokenSource before each pass and tells
 * it what was drawn; only the TokenSource knows of constrained (tool calls) and speculative decoding (guessed tokens).
 */

import type { DraftCheck, PrefillRows } from '../decode/decoder.ts';
import type { GenerateRequest } from '../types.ts';
import type { Job, RunningJob } from './job.ts';
import type { SlotDecoder } from './slotDecoder.ts';

export interface DecodePlan {
  /** Decode steps that may run before the next read-back. */
  maxSteps: number;
  /** Rows of a pass that checks guessed tokens, to be run in place of decode steps. */
  draft?: { rows: PrefillRows; rounds: DraftCheck[][] };
}

export interface TokenSource {
  /** A turn of a sample begins. */
  open(request: GenerateRequest): void;
  /** A sample is released. */
  close(requestId: string): void;
  /** True if the host must read the job's last token before the next one is drawn. */
  needsLastToken(job: Job): boolean;
  /** Tells the decoder which tokens each job's next draw may be. */
  setMasks(jobs: readonly RunningJob[]): void;
  /** The next pass of these jobs, all of which have drawn a token. Sets their masks. */
  plan(jobs: readonly RunningJob[]): DecodePlan;
  /** The host has read more tokens of a job, hostTokens[from] and after. Returns how many guesses of a draft were right. */
  accept(job: RunningJob, from: number): { guessed: number; accepted: number } | undefined;
  /** A pass without prefill has drawn `drawn` tokens in `milliseconds`. */
  passFinished(kind: 'draft' | 'steps', milliseconds: number, drawn: number): void;
}

/** Plain decoding: each token is drawn from the model's distribution, masked where a tool call has to stay valid. */
export class SampledTokens implements TokenSource {
  readonly #decoder: SlotDecoder;

  constructor(decoder: SlotDecoder) {
    this.#decoder = decoder;
  }

  open(): void {}

  close(): void {}

  needsLastToken(job: Job): boolean {
    return job.guide !== undefined;
  }

  setMasks(jobs: readonly RunningJob[]): void {
    for (const { guide, cached, tokensLeft } of jobs)
      if (guide) this.#decoder.setMask(cached.slot, guide.mask(tokensLeft));
  }

  plan(jobs: readonly RunningJob[]): DecodePlan {
    this.setMasks(jobs);
    return { maxSteps: jobs.some((job) => job.guide) ? 1 : Infinity };
  }

  accept(): undefined {}

  passFinished(): void {}
}
