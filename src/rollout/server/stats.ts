/** Counts the work of the rollout server since the last call of `take`. */

import type { RolloutStats } from '../types.ts';

/** Returns counters that are all 0. */
export const noStats = (): RolloutStats => ({
  generatedTokens: 0,
  prefillTokens: 0,
  cachedTokens: 0,
  decodeSteps: 0,
  wastedRows: 0,
  liveRows: 0,
  preemptions: 0,
  draftTokens: 0,
  acceptedTokens: 0,
  verifications: 0,
});

/** Counters of the work of a rollout server. */
export class ServerStats {
  #counts = noStats();
  /** Number of tokens sampled by prefill passes. They are part of generatedTokens, but not rows of a decode step. */
  #firstDraws = 0;

  /** Counts a prefill pass that computes `rows` context tokens and samples `draws` first tokens. */
  addPrefill(rows: number, draws: number): void {
    this.#counts.prefillTokens += rows;
    this.#counts.generatedTokens += draws;
    this.#firstDraws += draws;
  }

  /** Counts context tokens whose keys and values were in the cache. */
  addCached(tokens: number): void {
    this.#counts.cachedTokens += tokens;
  }

  addDecode(steps: number, sequences: number): void {
    this.#counts.decodeSteps += steps;
    this.#counts.liveRows += steps * sequences;
  }

  /** Counts tokens that were sampled by decode steps and by passes that check guesses. */
  addGenerated(tokens: number): void {
    this.#counts.generatedTokens += tokens;
  }

  /**
   * Counts the check of a sequence's `guessed` tokens: `accepted` of them were right, and the pass sampled `drawn` tokens of the sequence.
   */
  addVerification(drawn: number, guessed: number, accepted: number): void {
    this.#counts.liveRows += drawn;
    this.#counts.draftTokens += guessed;
    this.#counts.acceptedTokens += accepted;
    if (guessed > 0) this.#counts.verifications++;
  }

  addPreemption(): void {
    this.#counts.preemptions++;
  }

  /** Returns and resets the counters. */
  take(): RolloutStats {
    const { liveRows, generatedTokens } = this.#counts;
    const taken = { ...this.#counts, wastedRows: liveRows - (generatedTokens - this.#firstDraws) };
    this.#counts = noStats();
    this.#firstDraws = 0;
    return taken;
  }
}
