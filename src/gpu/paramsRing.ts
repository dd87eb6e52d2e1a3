/** Parameters of dispatches. Each dispatch has a slot in a uniform buffer, and all slots are uploaded together at a submit. */

import type { Kernel } from './kernel.ts';
import { USAGE } from './view.ts';

const BYTES = 1 << 20;
/** Dynamic offsets of uniform buffers must be multiples of this number. */
const SLOT = 256;

/** Owns the uniform buffer. When it is full, the caller must upload it and submit the passes that read it. */
export class ParamsRing {
  readonly buffer: GPUBuffer;
  readonly #device: GPUDevice;
  readonly #cpu = new DataView(new ArrayBuffer(BYTES));
  #used = 0;

  constructor(device: GPUDevice) {
    this.#device = device;
    this.buffer = device.createBuffer({ label: 'params', size: BYTES, usage: USAGE.UNIFORM | USAGE.COPY_DST });
  }

  /** True if the buffer has no slot left, after 4096 dispatches. */
  get isFull(): boolean {
    return this.#used + SLOT > BYTES;
  }

  /** Stores a dispatch's parameters. Returns their offset in the uniform buffer. */
  push({ params: types }: Pick<Kernel, 'params'>, values: Record<string, number>): number {
    const offset = this.#used;
    let at = offset;
    for (const name in types) {
      if (types[name] === 'f32') this.#cpu.setFloat32(at, values[name], true);
      else this.#cpu.setUint32(at, values[name], true);
      at += 4;
    }
    this.#used += SLOT;
    return offset;
  }

  /** Uploads the parameters stored since the last upload. Call it before submitting the passes that read them. */
  upload(): void {
    if (this.#used > 0) this.#device.queue.writeBuffer(this.buffer, 0, this.#cpu.buffer, 0, this.#used);
    this.#used = 0;
  }
}
