import type { View } from './device.ts';

/** Throws unless `view` holds at least `count` 4-byte values (working buffers are sized for the largest batch). */
export function expectElements(what: string, view: View, count: number): void {
  if (view.bytes < count * 4) {
    throw new RangeError(
      `${what} needs ${count} values (${count * 4} bytes) but got a view of ${view.bytes} bytes of "${view.buffer.label}".`,
    );
  }
}
