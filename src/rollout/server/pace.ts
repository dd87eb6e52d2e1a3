/** How many decode steps to enqueue before the next look at the stop flags. */

/** Share of a full batch that may be decoded for nothing: aimed at, so that 5% is not passed when the estimate is off. */
const WASTE = 0.04;
const MOST_STEPS = 32;
/** Of a read-back itself, about (`--only peak`: mapMs). */
const READ_MS = 0.5;
/** What a row decoded for nothing costs, of its share of a step: the rest of the step would be there without it. */
const WASTED_ROW = 0.6;
/** Of the host's work, what running ahead saves on a software adapter, which computes on the same cores. */
const SAVED_ON_SOFTWARE = 0.5;

export class Pace {
  /** Moving averages: of a step, of what the device waits for the host after a look, of the rows of a pass and of ends in it. */
  #stepMs = 1;
  #hostMs = 0;
  #rows = 1;
  #ends = 0.1;
  /** As hostMs, without looks at which something had ended: that work comes however seldom one looks. */
  #lookMs = 0;
  /** Rows of a full batch: few sequences, as at the end of a step, may waste a larger share of themselves. */
  #full = 1;

  /**
   * A look costs READ_MS + lookMs, a step too many finishRate x stepMs / 2 on average, so the sum is least at
   * sqrt(2 (READ_MS + lookMs) / (stepMs finishRate)). Sequences that end unforeseen waste finishRate x (steps - 1) / 2 of the
   * rows; those that reach their limit are known beforehand. With a pass in the air they waste the next one too, and what
   * the host does costs nothing as long as the device is busy with it.
   *
   * @param left tokens that each live sequence may still draw
   */
  steps(left: readonly number[], ahead = false): number {
    const rate = Math.max(this.#finishRate, 1e-3);
    const stepMs = Math.max(this.#stepMs, 0.01);
    const best = ahead
      ? Math.ceil((READ_MS + this.#hostMs) / stepMs)
      : Math.sqrt((2 * (READ_MS + this.#lookMs)) / (stepMs * rate));
    const waste = WASTE * Math.max(1, this.#full / left.length);
    const bound = ahead ? ((2 * waste) / rate + 1) / 3 : 1 + (2 * waste) / rate;
    let steps = Math.max(1, Math.min(MOST_STEPS, Math.floor(Math.min(best, bound))));
    const wasted = () => left.reduce((sum, tokens) => sum + Math.max(0, steps - tokens), 0);
    while (steps > 1 && wasted() > WASTE * steps * left.length) steps--;
    return steps;
  }

  /** What has ended wastes a step then, and everything else saves the wait. */
  paysToRunAhead(isSoftware: boolean): boolean {
    const saved = READ_MS + this.#hostMs * (isSoftware ? SAVED_ON_SOFTWARE : 1);
    return saved > WASTED_ROW * this.#finishRate * this.#stepMs;
  }

  learnTime(milliseconds: number, steps: number): void {
    this.#stepMs += 0.4 * (milliseconds / steps - this.#stepMs);
  }

  /** The host took so long from a look to the next pass; `plain` = nothing had ended, nothing new began. */
  learnWait(milliseconds: number, plain: boolean): void {
    this.#hostMs += 0.2 * (milliseconds - this.#hostMs);
    if (plain) this.#lookMs += 0.2 * (milliseconds - this.#lookMs);
  }

  /** `ended` of `live` sequences stopped within `steps` steps. */
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

/** Passes after which the slower way is tried again: what is faster changes with the batch. */
const TRY_AGAIN = 8;

/** Whether checking guesses pays: its passes against plain ones, by the time a token takes. Tokens do not depend on it. */
export class Gate {
  /** Moving averages; undefined until there is one. */
  #verifyMs: number | undefined;
  #plainMs: number | undefined;
  #seen = { verify: 0, plain: 0 };
  #closed = 0;

  isOpen(): boolean {
    if (this.#verifyMs === undefined || this.#plainMs === undefined || this.#verifyMs <= this.#plainMs) return true;
    return ++this.#closed % TRY_AGAIN === 0;
  }

  /** A pass of one kind drew so many tokens. The first of a kind compiles its kernels, and is not counted. */
  learn(kind: 'verify' | 'plain', milliseconds: number, tokens: number): void {
    if (this.#seen[kind]++ === 0 || tokens === 0) return;
    const now = milliseconds / tokens;
    const average = (old: number | undefined) => (old === undefined ? now : old + 0.2 * (now - old));
    if (kind === 'verify') this.#verifyMs = average(this.#verifyMs);
    else this.#plainMs = average(this.#plainMs);
  }
}
