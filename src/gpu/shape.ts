import type { View } from './view.ts';

/** Throws unless `view` holds at least `count` values of its kind (working buffers are sized for the largest batch). */
export function expectElements(what: string, view: View, count: number): void {
  const bytes = count * (view.half ? 2 : 4);
  if (view.bytes < bytes) {
    throw new RangeError(
      `${what} needs ${count} values (${bytes} bytes) but got a view of ${view.bytes} bytes of "${view.buffer.label}".`,
    );
  }
}
