/** Orders calls: samples run concurrently, every other call runs alone. Calls take effect in the order in which they were made. */
export class Turns {
  #alone: Promise<unknown> = Promise.resolve();
  /** Concurrent calls, running or waiting, that were made after the last exclusive call. */
  #beside = new Set<Promise<unknown>>();

  /** Runs `work` when all earlier calls have ended. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    const before = Promise.allSettled([this.#alone, ...this.#beside]);
    this.#beside = new Set();
    const done = before.then(work);
    this.#alone = done.catch(() => {});
    return done;
  }

  /** Runs `work` when all earlier calls that run alone have ended. */
  beside<T>(work: () => Promise<T>): Promise<T> {
    const among = this.#beside;
    const done = this.#alone.then(work);
    const ended = done
      .catch(() => {})
      .finally(() => {
        among.delete(ended);
      });
    among.add(ended);
    return done;
  }
}
