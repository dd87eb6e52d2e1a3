/** A device without a GPU. The constructors of an engine can allocate on it, and it counts the bytes that a real device would need. */

import { type AdapterSummary, Gpu } from './device.ts';
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

/** The part of a GPUDevice that `Gpu` needs for allocations. It allocates no memory. */
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
 * Counts allocated bytes by label, both in `counters` and for each call of `during`. Has no limits and cannot record or read. Only
 * `buffer`, `halves`, `slice`, `write` and `free` work, with or without WebGPU.
 */
export class PlannedGpu extends Gpu {
  #labels = new Map<string, number>();

  /**
   * @param maxArenaBytes largest buffer of weights; default: unlimited
   * @param adapter the adapter whose kernels are chosen
   */
  constructor(maxArenaBytes?: number, adapter: AdapterSummary = NO_ADAPTER) {
    super(new CountingDevice() as unknown as GPUDevice, adapter, maxArenaBytes === undefined ? {} : { maxArenaBytes });
  }

  override buffer(label: string, data: number | Float32Array | Uint32Array): View {
    const view = super.buffer(label, data);
    this.#labels.set(label, (this.#labels.get(label) ?? 0) + view.bytes);
    return view;
  }

  /** Returns the result of `build`, and the bytes that it allocates by label. */
  during<T>(build: () => T): { made: T; bytes: ReadonlyMap<string, number> } {
    this.#labels = new Map();
    return { made: build(), bytes: this.#labels };
  }
}
