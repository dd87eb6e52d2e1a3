/**
 * Orders the calls of a learner: `sample` calls run concurrently, every other call runs alone. Calls take effect in the order in which they
 * were made.
 */
export class Turns {
  #alone: Promise<unknown> = Promise.resolve();
  /** Concurrent calls that were made after the last exclusive call and have not ended. */
  #beside = new Set<Promise<unknown>>();

  /** Runs `work` alone: after all earlier calls, concurrent ones included, have ended. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    const before = Promise.allSettled([this.#alone, ...this.#beside]);
    this.#beside = new Set();
    const done = before.then(work);
    this.#alone = done.catch(() => {});
    return done;
  }

  /** Runs `work` concurrently with others: after the last exclusive call has ended. */
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
