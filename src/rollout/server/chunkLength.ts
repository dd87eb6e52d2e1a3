/** Chooses the number of decode steps to submit before the next read-back of the stop flags. */

/** Share of a full batch's rows that can be decoded in vain: below 5%, so that the estimate has a margin. */
const WASTE = 0.04;
const MOST_STEPS = 32;
/** Approximate milliseconds of a read-back itself (`--only peak`: mapMs). */
const READ_MS = 0.5;
/** Cost of a row decoded in vain, relative to its part of a step: the rest of the step is computed anyway. */
const WASTED_ROW = 0.6;
/** Share of the host's work that starting ahead saves on a software adapter, which computes on the same cores. */
const SAVED_ON_SOFTWARE = 0.5;

/** Estimates the costs of passes, and chooses the number of decode steps that minimises them. */
export class ChunkLength {
  /** Moving averages: milliseconds of a step, and of the device's wait for the host after a read-back. */
  #stepMs = 1;
  #hostMs = 0;
  /** Like hostMs, without read-backs that ended a sequence: that work is needed however seldom the host reads. */
  #readWaitMs = 0;
  /** Moving averages of a pass's rows and of the sequences that end in it. */
  #rows = 1;
  #ends = 0.1;
  /**
   * Rows of a full batch. If few sequences remain, as at the end of a training step, a larger share of them can be
   * wasted.
   */
  #full = 1;

  /**
   * Returns the number of decode steps of the next pass. A read-back costs READ_MS + readWaitMs, and steps after a
   * sequence's end cost finishRate * stepMs / 2 on average, so the sum is minimal at sqrt(2 (READ_MS + readWaitMs) /
   * (stepMs finishRate)). Sequences that stop waste finishRate * (steps - 1) / 2 of the rows; sequences that reach
   * their limit are known beforehand. With a pass in flight they also waste the next one, and the host's work costs
   * nothing while the device is busy.
   *
   * @param left tokens that each sequence can still sample
   */
  next(left: readonly number[], passInFlight = false): number {
    const rate = Math.max(this.#finishRate, 1e-3);
    const stepMs = Math.max(this.#stepMs, 0.01);
    const best = passInFlight
      ? Math.ceil((READ_MS + this.#hostMs) / stepMs)
      : Math.sqrt((2 * (READ_MS + this.#readWaitMs)) / (stepMs * rate));
    const waste = WASTE * Math.max(1, this.#full / left.length);
    const bound = passInFlight ? ((2 * waste) / rate + 1) / 3 : 1 + (2 * waste) / rate;
    let steps = Math.max(1, Math.min(MOST_STEPS, Math.floor(Math.min(best, bound))));
    const wasted = () => left.reduce((sum, tokens) => sum + Math.max(0, steps - tokens), 0);
    while (steps > 1 && wasted() > WASTE * steps * left.length) steps--;
    return steps;
  }

  /** True if starting a pass before the last one was read saves more than the step it wastes on ended sequences. */
  paysToStartAhead(isSoftware: boolean): boolean {
    const saved = READ_MS + this.#hostMs * (isSoftware ? SAVED_ON_SOFTWARE : 1);
    return saved > WASTED_ROW * this.#finishRate * this.#stepMs;
  }

  learnTime(milliseconds: number, steps: number): void {
    this.#stepMs += 0.4 * (milliseconds / steps - this.#stepMs);
  }

  /**
   * Records the device's wait from a read-back to the next pass. `plain` = no sequence ended or started between them.
   */
  learnWait(milliseconds: number, plain: boolean): void {
    this.#hostMs += 0.2 * (milliseconds - this.#hostMs);
    if (plain) this.#readWaitMs += 0.2 * (milliseconds - this.#readWaitMs);
  }

  /** Records that `ended` of `live` sequences stopped within `steps` steps. */
  learnEnds(ended: number, live: number, steps: number): void {
    if (live === 0 || steps === 0) return;
    this.#full = Math.max(live, 0.98 * this.#full);
    this.#rows += 0.05 * (live * steps - this.#rows);
    this.#ends += 0.05 * (ended - this.#ends);
  }

  /** Share of live sequences that end in a step. */
  get #finishRate(): number {
    return this.#ends / this.#rows;
  }
}
