/** Guessing on a schedule: which sequences guess what in a pass, whether checking pays, and what came true. */

import { Drafts, type SpeculativeOptions } from './drafts.ts';
import { type Running, tokensLeft } from '../server/job.ts';
import { Gate } from '../server/pace.ts';
import type { RolloutStats } from '../types.ts';
import { fitGuesses, planVerify } from './verify.ts';

/** With guesses to come, plain steps between two looks at what was drawn. */
export const STEPS_BETWEEN_GUESSES = 4;
/** A pass that checks guesses must have so many for each of its sequences, or plain steps are cheaper. */
const GUESSES_WORTH_A_PASS = 0.25;

export class Speculation {
  readonly drafts: Drafts;
  /** Absent = guesses are always checked. */
  readonly #gate: Gate | undefined;
  /** What the pass under way guesses of its sequences. */
  readonly #guessed = new Map<Running, number[]>();

  constructor(options: SpeculativeOptions) {
    this.drafts = new Drafts(options);
    this.#gate = options.adapt ? new Gate() : undefined;
  }

  /** What to check of each job, at most `room` rows of guesses in all; undefined where checking does not pay. */
  plan(live: Running[], decoder: Parameters<typeof planVerify>[0], room: number) {
    const fit = fitGuesses(
      live.map((job) => this.#guess(job)),
      room,
    );
    if (fit.flat().length <= GUESSES_WORTH_A_PASS * live.length || this.#gate?.isOpen() === false) return undefined;
    live.forEach((job, i) => this.#guessed.set(job, fit[i]));
    return planVerify(
      decoder,
      live.map((job, i) => ({ job, guesses: fit[i] })),
    );
  }

  /** Rows that the pass under way has for sequences and the guesses of them. */
  rowsVerified(): number {
    return [...this.#guessed.values()].reduce((rows, guesses) => rows + 1 + guesses.length, 0);
  }

  /** A pass without prefill took so long and drew so many. */
  learnPass(kind: 'verify' | 'plain', ms: number, drawn: number): void {
    this.#gate?.learn(kind, ms, drawn);
  }

  /** Counts the guesses that came true: `before` tokens had been drawn when they were made, `drawn` were drawn since. */
  learn(job: Running, before: number, drawn: number, stats: RolloutStats): void {
    const { requestId } = job.request;
    this.drafts.push(requestId, job.known.slice(before));
    const guesses = this.#guessed.get(job);
    if (!guesses) return;
    const wrong = guesses.findIndex((token, i) => job.known[before + i] !== token);
    const accepted = wrong < 0 ? guesses.length : wrong;
    stats.liveRows += drawn;
    if (guesses.length === 0) return;
    this.drafts.learn(requestId, guesses.length, accepted);
    stats.draftTokens += guesses.length;
    stats.acceptedTokens += accepted;
    stats.verifications++;
  }

  passEnded(): void {
    this.#guessed.clear();
  }

  /** What comes after a stop token, or is beyond the limit, need not be guessed; nor what a tool call may not have. */
  #guess(job: Running): number[] {
    const guess = this.#fromHistory(job);
    if (!job.guided) return guess;
    const { guide, state } = job.guided;
    return guess.slice(0, guide.masks(state, guess, tokensLeft(job)).length - 1);
  }

  #fromHistory(job: Running): number[] {
    const { requestId, sampling } = job.request;
    const guess = this.drafts.guess(requestId, tokensLeft(job) - 1);
    const stop = guess.findIndex((token) => sampling.stopTokenIds.includes(token));
    return stop < 0 ? guess : guess.slice(0, stop);
  }
}
