/** Calls take effect in the order in which they were made: samples side by side, everything else alone. */

export class Turns {
  #alone: Promise<unknown> = Promise.resolve();
  /** Begun or waiting since the last that goes alone. */
  #beside = new Set<Promise<unknown>>();

  /** Runs when all calls before it have ended. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    const before = Promise.allSettled([this.#alone, ...this.#beside]);
    this.#beside = new Set();
    const done = before.then(work);
    this.#alone = done.catch(() => {});
    return done;
  }

  /** Runs when all calls before it that go alone have ended. */
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
