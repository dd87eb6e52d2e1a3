/** Scratch buffer for weights converted to or from float32. In the arena these weights have another format. */

import type { Gpu } from '../../gpu/device.ts';
import type { View } from '../../gpu/view.ts';

/**
 * Owns the scratch buffer. If products read the buffer it always exists, otherwise only during an import or export.
 */
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

  /** Called when the import or export has ended. */
  release(): void {
    if (!this.isKept) this.free();
  }

  free(): void {
    if (this.#view) this.#gpu.free(this.#view);
    this.#view = undefined;
  }
}
