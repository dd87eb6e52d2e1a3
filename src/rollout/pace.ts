/** How many decode steps to enqueue before the next look at the stop flags. */

/** Share of rows that may be decoded for nothing: aimed at, so that 5% is not passed when the estimate is off. */
const WASTE = 0.04;
const MOST_STEPS = 32;

export class Pace {
  /** Moving averages: of a step, of a read-back, and of the share of live sequences that end in a step. */
  #stepMs = 1;
  readonly #readMs = 0.5;
  #finishRate = 0.1;

  /**
   * A read costs readMs, a step too many finishRate x stepMs / 2 on average, so the sum is least at
   * sqrt(2 readMs / (stepMs finishRate)). Sequences that end unforeseen waste finishRate x (steps - 1) / 2 of the rows;
   * those that reach their limit are known beforehand.
   *
   * @param left tokens that each live sequence may still draw
   */
  steps(left: readonly number[]): number {
    const rate = Math.max(this.#finishRate, 1e-3);
    const best = Math.sqrt((2 * this.#readMs) / (Math.max(this.#stepMs, 0.01) * rate));
    const bound = 1 + (2 * WASTE) / rate;
    let steps = Math.max(1, Math.min(MOST_STEPS, Math.floor(Math.min(best, bound))));
    const wasted = () => left.reduce((sum, tokens) => sum + Math.max(0, steps - tokens), 0);
    while (steps > 1 && wasted() > WASTE * steps * left.length) steps--;
    return steps;
  }

  learnTime(milliseconds: number, steps: number): void {
    this.#stepMs += 0.2 * (milliseconds / steps - this.#stepMs);
  }

  /** `ended` of `live` sequences stopped within `steps` steps. */
  learnEnds(ended: number, live: number, steps: number): void {
    if (live === 0 || steps === 0) return;
    this.#finishRate += 0.05 * (ended / live / steps - this.#finishRate);
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
