/** Room for weights as float32, on their way to or from the form in which an arena keeps them. */

import type { Gpu } from '../../gpu/device.ts';
import type { View } from '../../gpu/view.ts';

/** Owns that buffer, which is there while it is needed: always, where products read what is in it, else during a transfer. */
export class Float32Scratch {
  readonly bytes: number;
  /** Products read what is in it. */
  readonly isKept: boolean;
  readonly #gpu: Gpu;
  readonly #label: string;
  #view: View | undefined;

  constructor(gpu: Gpu, label: string, elements: number, isKept: boolean) {
    this.#gpu = gpu;
    this.#label = label;
    this.bytes = elements * 4;
    this.isKept = isKept;
    if (isKept) this.#view = gpu.buffer(label, this.bytes);
  }

  get view(): View {
    return (this.#view ??= this.#gpu.buffer(this.#label, this.bytes));
  }

  /** The transfer is over. */
  release(): void {
    if (!this.isKept) this.free();
  }

  free(): void {
    if (this.#view) this.#gpu.free(this.#view);
    this.#view = undefined;
  }
}
