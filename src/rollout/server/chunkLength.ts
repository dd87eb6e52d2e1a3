/** Chooses the number of decode steps to submit before the next read-back, which tells the host which sequences have stopped. */

/**
 * Maximum fraction of a full batch's rows that may be decoded after their sequences ended. The aim is below 5%, so the estimate has a
 * margin.
 */
const WASTE = 0.04;
const MOST_STEPS = 32;
/** Approximate milliseconds of a read-back without waiting; measured as `mapMs` by `npm run bench -- --only peak`. */
const READ_MS = 0.5;

/** Estimates the costs of passes, and chooses the number of decode steps per pass that minimises them. */
export class ChunkLength {
  /**
   * Moving averages in milliseconds: of a decode step, and of the device's wait for the host after a read-back in which no sequence ended.
   * The work after an ended sequence is needed however seldom the host reads.
   */
  #stepMs = 1;
  #readWaitMs = 0;
  /** Moving averages: of the number of rows of a pass, and of the number of sequences that end in a pass. */
  #rows = 1;
  #ends = 0.1;
  /**
   * Number of sequences in a full batch. If few sequences remain, as at the end of a training step, a larger fraction of their rows can be
   * wasted.
   */
  #full = 1;

  /**
   * Returns the number of decode steps of the next pass. finishRate is the estimated fraction of the sequences that end per step. A
   * read-back costs READ_MS + readWaitMs, and steps after a sequence's end cost finishRate * stepMs / 2 on average, so the sum is minimal at
   * sqrt(2 (READ_MS + readWaitMs) / (stepMs finishRate)). Sequences that stop waste finishRate * (steps - 1) / 2 of the rows. Sequences that
   * reach their length limit waste none, because their end is known beforehand.
   *
   * @param left number of tokens that each sequence can still sample
   */
  next(left: readonly number[]): number {
    const finishRate = Math.max(this.#ends / this.#rows, 1e-3);
    const stepMs = Math.max(this.#stepMs, 0.01);
    const best = Math.sqrt((2 * (READ_MS + this.#readWaitMs)) / (stepMs * finishRate));
    const waste = WASTE * Math.max(1, this.#full / left.length);
    const bound = 1 + (2 * waste) / finishRate;
    let steps = Math.max(1, Math.min(MOST_STEPS, Math.floor(Math.min(best, bound))));
    const wasted = () => left.reduce((sum, tokens) => sum + Math.max(0, steps - tokens), 0);
    while (steps > 1 && wasted() > WASTE * steps * left.length) steps--;
    return steps;
  }

  learnTime(milliseconds: number, steps: number): void {
    this.#stepMs += 0.4 * (milliseconds / steps - this.#stepMs);
  }

  /** Records how long the device waited from a read-back to the next pass. No sequence ended or started in between. */
  learnWait(milliseconds: number): void {
    this.#readWaitMs += 0.2 * (milliseconds - this.#readWaitMs);
  }

  /** Records that `ended` of `live` sequences stopped within `steps` decode steps. */
  learnEnds(ended: number, live: number, steps: number): void {
    if (live === 0 || steps === 0) return;
    this.#full = Math.max(live, 0.98 * this.#full);
    this.#rows += 0.05 * (live * steps - this.#rows);
    this.#ends += 0.05 * (ended - this.#ends);
  }
}
