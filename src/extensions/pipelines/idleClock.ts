/** Measures the share of a step in which the trainer waits for samples, and the share in which no sample is generated. */

/** Measures the time in which at least one piece of work is in flight. */
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

  /** Returns the measured milliseconds since the last call. */
  take(): number {
    const isRunning = this.#since !== undefined;
    this.end();
    const ms = this.#ms;
    this.#ms = 0;
    if (isRunning) this.begin();
    return ms;
  }
}

/** Measures how long the trainer waits for samples, and how long no sample is generated. */
export class IdleClock {
  readonly #generating = new BusyTime();
  #waitedMs = 0;
  #startedAt = 0;

  /** Starts the measurement of a step. */
  start(): void {
    this.#startedAt = performance.now();
    this.#waitedMs = 0;
    this.#generating.take();
  }

  /** Sets whether samples are being generated from now on. */
  setGenerating(isBusy: boolean): void {
    if (isBusy) this.#generating.begin();
    else this.#generating.end();
  }

  /** Awaits `work` and counts this time as waiting time of the trainer. */
  async waitFor<T>(work: Promise<T>): Promise<T> {
    const started = performance.now();
    try {
      return await work;
    } finally {
      this.#waitedMs += performance.now() - started;
    }
  }

  /** Returns the idle shares since `start`, under verl's names. */
  metrics(): { 'trainer/idle_ratio': number; 'rollouter/idle_ratio': number } {
    const ms = Math.max(1e-3, performance.now() - this.#startedAt);
    const share = (part: number) => Math.min(1, Math.max(0, part / ms));
    return {
      'trainer/idle_ratio': share(this.#waitedMs),
      'rollouter/idle_ratio': share(ms - this.#generating.take()),
    };
  }
}
