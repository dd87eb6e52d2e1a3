/** A binary heap that returns its least item first. */
export class Heap<T> {
  readonly #items: T[] = [];
  readonly #isBefore: (a: T, b: T) => boolean;

  constructor(isBefore: (a: T, b: T) => boolean) {
    this.#isBefore = isBefore;
  }

  get size(): number {
    return this.#items.length;
  }

  /** The least item; undefined if the heap is empty. */
  get least(): T | undefined {
    return this.#items[0];
  }

  add(item: T): void {
    const items = this.#items;
    let place = items.push(item) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!this.#isBefore(item, items[parent])) break;
      items[place] = items[parent];
      place = parent;
    }
    items[place] = item;
  }

  take(): T | undefined {
    const items = this.#items;
    const [least] = items;
    const last = items.pop();
    if (last === undefined || items.length === 0) return least;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child + 1 < items.length && this.#isBefore(items[child + 1], items[child])) child++;
      if (child >= items.length || !this.#isBefore(items[child], last)) break;
      items[place] = items[child];
      place = child;
    }
    items[place] = last;
    return least;
  }
}
