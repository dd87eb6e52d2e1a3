/**
 * Decides which tokens a sequence can sample in the next pass. Before each pass, the scheduler asks a TokenSource for a plan; after it, the
 * scheduler reports the sampled tokens. Only the TokenSource knows about constrained decoding (tool calls) and speculative decoding
 * (guessed tokens).
 */

import { extensionPoint } from '../../extensionPoint.ts';
import type { DraftCheck, PrefillRows } from '../decode/decoder.ts';
import type { GenerateRequest } from '../types.ts';
import type { Job, RunningJob } from './job.ts';
import type { SlotDecoder } from './slotDecoder.ts';

export interface DecodePlan {
  /** Maximum number of decode steps before the next read-back. */
  maxSteps: number;
  /** Rows of a pass that checks guessed tokens. If set, the pass runs instead of decode steps. */
  draft?: { rows: PrefillRows; rounds: DraftCheck[][] };
}

export interface TokenSource {
  /** Called when a turn of a sample starts. */
  open(request: GenerateRequest): void;
  /** Called when a sample is released. */
  close(requestId: string): void;
  /** True if the host must read the job's last token before the next one is sampled. */
  needsLastToken(job: Job): boolean;
  /** Sets in the decoder which tokens can follow next in each job. */
  setMasks(jobs: readonly RunningJob[]): void;
  /** Plans the next pass of these jobs, each of which has sampled at least one token. Sets the jobs' masks. */
  plan(jobs: readonly RunningJob[]): DecodePlan;
  /**
   * Called when the host has read more tokens of a job: hostTokens[from] and later. If they come from a pass that checked guesses, returns
   * the number of guesses and of right ones.
   */
  accept(job: RunningJob, from: number): { guessed: number; accepted: number } | undefined;
  /** Called after a pass without prefill that sampled `drawn` tokens and took `milliseconds`. */
  passFinished(kind: 'draft' | 'steps', milliseconds: number, drawn: number): void;
}

/** Settings of speculative decoding. */
export interface SpeculativeOptions {
  /** Maximum number of tokens in one guess. */
  maxDraftTokens: number;
  /** Number of last tokens that must have occurred before, so that the tokens after them are guessed. */
  minNgram: number;
  /** Maximum number of finished samples that are stored for each prompt. */
  history: number;
  /** True to check guesses only while this takes less time per token than plain decoding. */
  adapt: boolean;
}

/** Creates a source that guesses tokens and has a pass check several at once. */
export const draftedTokens =
  extensionPoint<(decoder: SlotDecoder, options: SpeculativeOptions) => TokenSource>('Speculative decoding');

/** Plain decoding: each token is sampled from the model's distribution, with a mask if the job's tool calls are constrained. */
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
