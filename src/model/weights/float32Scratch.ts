/** Scratch buffer for weights as float32, on their way to or from their storage form in an arena. */

import type { Gpu } from '../../gpu/device.ts';
import type { View } from '../../gpu/view.ts';

/** Owns that buffer. It exists while needed: always if products read it, otherwise only during a transfer. */
export class Float32Scratch {
  readonly bytes: number;
  /** True if products read the buffer. */
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

  /** Called when the transfer has ended. */
  release(): void {
    if (!this.isKept) this.free();
  }

  free(): void {
    if (this.#view) this.#gpu.free(this.#view);
    this.#view = undefined;
  }
}
