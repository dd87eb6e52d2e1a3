/** A table on the GPU with one row per slot. The rows of all slots that start in a pass are uploaded together. */

import type { Gpu, View } from '../../gpu/device.ts';

/** Owns a table with one row per slot on the GPU, and a copy of it on the host. */
export class SlotRows {
  readonly view: View;
  readonly #gpu: Gpu;
  readonly #width: number;
  readonly #changed = new Map<number, readonly number[]>();

  /** [slots, width] u32 */
  constructor(gpu: Gpu, label: string, slots: number, width: number) {
    this.view = gpu.buffer(label, slots * width * 4);
    this.#gpu = gpu;
    this.#width = width;
  }

  set(slot: number, row: readonly number[]): void {
    this.#changed.set(slot, row);
  }

  /**
   * Uploads the rows that were set since the last call, adjacent rows together. Call `flush` before recording a kernel that reads the
   * table.
   */
  flush(): void {
    const slots = [...this.#changed.keys()].sort((a, b) => a - b);
    for (let i = 0; i < slots.length;) {
      const first = slots[i];
      const words: number[] = [];
      for (; slots[i] === first + words.length / this.#width; i++) words.push(...this.#changed.get(slots[i])!);
      this.#gpu.write(this.view, Uint32Array.from(words), first * this.#width);
    }
    this.#changed.clear();
  }
}
