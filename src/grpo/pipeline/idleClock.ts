/** Measures the share of a step in which the trainer waits for samples, and the share in which no sample is generated. */

/** Sums up the time in which something is in flight. */
class BusyTime {
  #ms = 0;
  #since: number | undefined;

  begin(): void {
    this.#since ??= performance.now();
  }

  end(): void {
    this.#ms += this.#since === undefined ? 0 : performance.now() - this.#since;
    this.#since = undefined;
  }

  /** Milliseconds since the last call. */
  take(): number {
    const isRunning = this.#since !== undefined;
    this.end();
    const ms = this.#ms;
    this.#ms = 0;
    if (isRunning) this.begin();
    return ms;
  }
}

export class IdleClock {
  readonly #generating = new BusyTime();
  #waitedMs = 0;
  #startedAt = 0;

  /** A step begins. */
  start(): void {
    this.#startedAt = performance.now();
    this.#waitedMs = 0;
    this.#generating.take();
  }

  /** Records if samples are generated from now on. */
  setGenerating(isBusy: boolean): void {
    if (isBusy) this.#generating.begin();
    else this.#generating.end();
  }

  /** Training waits for this. */
  async waitFor<T>(work: Promise<T>): Promise<T> {
    const started = performance.now();
    try {
      return await work;
    } finally {
      this.#waitedMs += performance.now() - started;
    }
  }

  /** verl's names; of the time since `start`. */
  metrics(): { 'trainer/idle_ratio': number; 'rollouter/idle_ratio': number } {
    const ms = Math.max(1e-3, performance.now() - this.#startedAt);
    const share = (part: number) => Math.min(1, Math.max(0, part / ms));
    return {
      'trainer/idle_ratio': share(this.#waitedMs),
      'rollouter/idle_ratio': share(ms - this.#generating.take()),
    };
  }
}
