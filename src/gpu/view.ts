/** Parts of GPU buffers: what kernels are bound to. */

import type { PackedFormat } from './packedFormat.ts';

/** Part of a GPUBuffer. `offset` is a multiple of 256 bytes, `bytes` of 4. */
export interface View {
  buffer: GPUBuffer;
  offset: number;
  bytes: number;
  /** Unique; what bind groups are cached by. */
  id: number;
  /** Weights kept in fewer bits, and how many; absent = 4-byte values. `turned`: a matrix that lies as [out, in]. */
  packed?: { format: PackedFormat; elements: number; turned?: boolean };
  /** Holds 16-bit floats; absent = 4-byte values. */
  half?: boolean;
}

let nextId = 0;

/** A view with an id of its own. */
export const newView = (buffer: GPUBuffer, offset = 0, bytes = buffer.size): View => ({
  buffer,
  offset,
  bytes,
  id: nextId++,
});

/** The same bytes as 16-bit floats; kernels bound to the view load and store those, which needs shader-f16. */
export const asHalves = (view: View): View => ({ ...view, half: true });

/** The numbers of GPUBufferUsage, as WebGPU fixes them: memory is also planned where there is no WebGPU. */
export const USAGE = { COPY_SRC: 0x4, COPY_DST: 0x8, UNIFORM: 0x40, STORAGE: 0x80 };

/** Throws unless `view` holds at least `count` values of its kind (working buffers are sized for the largest batch). */
export function expectElements(what: string, view: View, count: number): void {
  const bytes = count * (view.half ? 2 : 4);
  if (view.bytes < bytes) {
    throw new RangeError(
      `${what} needs ${count} values (${bytes} bytes) but got a view of ${view.bytes} bytes of "${view.buffer.label}".`,
    );
  }
}
