/** Views: parts of GPU buffers that kernels are bound to. */

import type { PackedFormat } from './packedFormat.ts';

/** Part of a GPUBuffer. `offset` is a multiple of 256 bytes, `bytes` of 4. */
export interface View {
  buffer: GPUBuffer;
  offset: number;
  bytes: number;
  /** Number that is unique per view; the key of cached bind groups. */
  id: number;
  /** Packed format and number of elements. `turned` = the matrix is stored as [out, in]. Undefined: 4-byte values. */
  packed?: { format: PackedFormat; elements: number; turned?: boolean };
  /** True for 16-bit floats. Default: 4-byte values. */
  half?: boolean;
}

let nextId = 0;

/** Creates a view with a new id. */
export const newView = (buffer: GPUBuffer, offset = 0, bytes = buffer.size): View => ({
  buffer,
  offset,
  bytes,
  id: nextId++,
});

/** Returns a view of the same bytes as 16-bit floats. Kernels bound to the view load and store halves, which needs shader-f16. */
export const asHalves = (view: View): View => ({ ...view, half: true });

/** Values of GPUBufferUsage as the WebGPU specification sets them. They are repeated here because memory plans also run without WebGPU. */
export const USAGE = { COPY_SRC: 0x4, COPY_DST: 0x8, UNIFORM: 0x40, STORAGE: 0x80 };

/**
 * Throws unless `view` has at least `count` values of its type. A view can be larger, because working buffers are sized for the largest
 * batch.
 */
export function expectElements(what: string, view: View, count: number): void {
  const bytes = count * (view.half ? 2 : 4);
  if (view.bytes < bytes) {
    throw new RangeError(
      `${what} needs ${count} values (${bytes} bytes) but got a view of ${view.bytes} bytes of "${view.buffer.label}".`,
    );
  }
}
