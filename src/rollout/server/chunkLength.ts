/** Chooses the number of decode steps to submit before the next read-back, which tells the host which sequences have stopped. */

/**
 * Maximum fraction of a full batch's rows that may be decoded after their sequences ended. The aim is below 5%, so the estimate has a
 * margin.
 */
const WASTE = 0.04;
const MOST_STEPS = 32;
/** Approximate milliseconds of a read-back without waiting; measured as `mapMs` by `npm run bench -- --only peak`. */
const READ_MS = 0.5;
/**
 * Cost of a row that is decoded after its sequence ended, relative to the row's share of a step. The rest of the step is computed anyway.
 */
const WASTED_ROW = 0.6;
/** Fraction of the host's work that starting the next pass early saves on a software adapter, which computes on the same CPU cores. */
const SAVED_ON_SOFTWARE = 0.5;

/** Estimates the costs of passes, and chooses the number of decode steps per pass that minimises them. */
export class ChunkLength {
  /** Moving averages in milliseconds: of a decode step, and of the device's wait for the host after a read-back. */
  #stepMs = 1;
  #hostMs = 0;
  /**
   * Like hostMs, but only for read-backs in which no sequence ended. The work after an ended sequence is needed however seldom the host
   * reads.
   */
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
   * Returns the number of decode steps of the next pass. A read-back costs READ_MS + readWaitMs, and steps after a sequence's end cost
   * finishRate * stepMs / 2 on average, so the sum is minimal at sqrt(2 (READ_MS + readWaitMs) / (stepMs finishRate)). Sequences that stop
   * waste finishRate * (steps - 1) / 2 of the rows. Sequences that reach their length limit waste none, because their end is known
   * beforehand. With a pass in flight, stopped sequences also waste the rows of the next pass, but the host's work costs nothing while the
   * device is busy.
   *
   * @param left number of tokens that each sequence can still sample
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

  /** True if starting a pass before the last one was read saves more time than it wastes on a step of ended sequences. */
  paysToStartAhead(isSoftware: boolean): boolean {
    const saved = READ_MS + this.#hostMs * (isSoftware ? SAVED_ON_SOFTWARE : 1);
    return saved > WASTED_ROW * this.#finishRate * this.#stepMs;
  }

  learnTime(milliseconds: number, steps: number): void {
    this.#stepMs += 0.4 * (milliseconds / steps - this.#stepMs);
  }

  /** Records how long the device waited from a read-back to the next pass. `plain` = no sequence ended or started in between. */
  learnWait(milliseconds: number, plain: boolean): void {
    this.#hostMs += 0.2 * (milliseconds - this.#hostMs);
    if (plain) this.#readWaitMs += 0.2 * (milliseconds - this.#readWaitMs);
  }

  /** Records that `ended` of `live` sequences stopped within `steps` decode steps. */
  learnEnds(ended: number, live: number, steps: number): void {
    if (live === 0 || steps === 0) return;
    this.#full = Math.max(live, 0.98 * this.#full);
    this.#rows += 0.05 * (live * steps - this.#rows);
    this.#ends += 0.05 * (ended - this.#ends);
  }

  /** Estimated fraction of the live sequences that end per step. */
  get #finishRate(): number {
    return this.#ends / this.#rows;
  }
}
