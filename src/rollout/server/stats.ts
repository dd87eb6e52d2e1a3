/** Counters of the rollout server since the last call of `take`. */

import type { RolloutStats } from '../types.ts';

/** Returns the counts of a new engine. */
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

/** Counts the work of a rollout server. */
export class ServerStats {
  #counts = noStats();
  /** Tokens sampled by prefill passes: part of generatedTokens, but not rows of a decode step. */
  #firstDraws = 0;

  /** Counts a prefill pass that computes `rows` context tokens and samples `draws` first tokens. */
  addPrefill(rows: number, draws: number): void {
    this.#counts.prefillTokens += rows;
    this.#counts.generatedTokens += draws;
    this.#firstDraws += draws;
  }

  /** Counts context tokens that were in the cache. */
  addCached(tokens: number): void {
    this.#counts.cachedTokens += tokens;
  }

  addDecode(steps: number, sequences: number): void {
    this.#counts.decodeSteps += steps;
    this.#counts.liveRows += steps * sequences;
  }

  /** Counts tokens sampled by decode steps and verifications. */
  addGenerated(tokens: number): void {
    this.#counts.generatedTokens += tokens;
  }

  /** Counts a verification that sampled `drawn` tokens of a sequence; `accepted` of its `guessed` tokens were right. */
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
