/** A device that is not there: constructors allocate on it, and what they would take of a real one is counted. */

import { Gpu } from './device.ts';
import type { View } from './view.ts';

const NO_ADAPTER = {
  vendor: '',
  architecture: '',
  description: '',
  isSoftware: false,
  subgroupSize: 0,
  subgroupMaxSize: 0,
  features: [],
};

/** The part of a GPUDevice that `Gpu` allocates by, without any memory behind it. */
class CountingDevice {
  readonly limits = { maxStorageBufferBindingSize: Infinity, maxBufferSize: Infinity };
  readonly lost = new Promise<never>(() => {});
  readonly queue = { writeBuffer: () => {} };
  addEventListener(): void {}
  createBuffer({ label, size }: GPUBufferDescriptor) {
    return { label, size, destroy: () => {} };
  }
}

/**
 * Counts bytes by label, in `counters` and for each call of `during`. Nothing is bounded, and nothing can be recorded or read:
 * only `buffer`, `halves`, `slice`, `write` and `free` work, with or without WebGPU.
 */
export class PlannedGpu extends Gpu {
  #labels = new Map<string, number>();

  /** @param maxArenaBytes the largest buffer of weights; absent = any */
  constructor(maxArenaBytes?: number) {
    super(
      new CountingDevice() as unknown as GPUDevice,
      NO_ADAPTER,
      maxArenaBytes === undefined ? {} : { maxArenaBytes },
    );
  }

  override buffer(label: string, data: number | Float32Array | Uint32Array): View {
    const view = super.buffer(label, data);
    this.#labels.set(label, (this.#labels.get(label) ?? 0) + view.bytes);
    return view;
  }

  /** The result of `build`, and the bytes it allocates by label. */
  during<T>(build: () => T): { made: T; bytes: ReadonlyMap<string, number> } {
    this.#labels = new Map();
    return { made: build(), bytes: this.#labels };
  }
}
