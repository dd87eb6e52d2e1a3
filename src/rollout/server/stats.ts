/** Counters of the rollout server since they were last taken. */

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

export class ServerStats {
  #counts = noStats();
  /** Tokens drawn by prefill passes: part of generatedTokens, but no rows of a decode step. */
  #firstDraws = 0;

  /** A prefill pass computes `rows` context tokens and ends with `draws` first draws. */
  addPrefill(rows: number, draws: number): void {
    this.#counts.prefillTokens += rows;
    this.#counts.generatedTokens += draws;
    this.#firstDraws += draws;
  }

  /** Context tokens that were in the cache. */
  addCached(tokens: number): void {
    this.#counts.cachedTokens += tokens;
  }

  addDecode(steps: number, sequences: number): void {
    this.#counts.decodeSteps += steps;
    this.#counts.liveRows += steps * sequences;
  }

  /** Tokens drawn by decode steps and verifications. */
  addGenerated(tokens: number): void {
    this.#counts.generatedTokens += tokens;
  }

  /** A verification drew `drawn` tokens of a sequence; `accepted` of its `guessed` tokens were among them. */
  addVerification(drawn: number, guessed: number, accepted: number): void {
    this.#counts.liveRows += drawn;
    this.#counts.draftTokens += guessed;
    this.#counts.acceptedTokens += accepted;
    if (guessed > 0) this.#counts.verifications++;
  }

  addPreemption(): void {
    this.#counts.preemptions++;
  }

  /** The counters since the last call. */
  take(): RolloutStats {
    const { liveRows, generatedTokens } = this.#counts;
    const taken = { ...this.#counts, wastedRows: liveRows - (generatedTokens - this.#firstDraws) };
    this.#counts = noStats();
    this.#firstDraws = 0;
    return taken;
  }
}
