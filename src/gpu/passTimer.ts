/** Measures compute passes with the GPU's clock and sums their times by label. Only for adapters with timestamps. */

import { newView, type View } from './view.ts';

/** Maximum number of labelled passes between two reads. Later passes are not timed. */
const PASSES = 128;

/** Owns a device's timestamps: two for each labelled pass since the last read. The caller that creates a PassTimer must destroy it. */
export class PassTimer {
  /** Label of passes that start from now on. Undefined: they are not timed. */
  label: string | undefined;
  /** Timestamps that `resolve` writes: [pass][begin, end], u64 nanoseconds. */
  readonly view: View;
  readonly #querySet: GPUQuerySet;
  #labels: string[] = [];

  /** @param device must have the feature timestamp-query. */
  constructor(device: GPUDevice) {
    this.#querySet = device.createQuerySet({ label: 'pass times', type: 'timestamp', count: 2 * PASSES });
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    this.view = newView(device.createBuffer({ label: 'pass times', size: 16 * PASSES, usage }));
  }

  /** Returns the descriptor of the next compute pass. Undefined if it is not timed. */
  next(): GPUComputePassDescriptor | undefined {
    if (this.label === undefined || this.#labels.length === PASSES) return undefined;
    const at = 2 * this.#labels.length;
    this.#labels.push(this.label);
    const timestampWrites = {
      querySet: this.#querySet,
      beginningOfPassWriteIndex: at,
      endOfPassWriteIndex: at + 1,
    };
    return { timestampWrites };
  }

  /** Records the copy of all timestamps so far into `view`, and forgets them. Returns the labels of their passes. */
  resolve(encoder: GPUCommandEncoder): string[] {
    const labels = this.#labels;
    this.#labels = [];
    if (labels.length > 0) encoder.resolveQuerySet(this.#querySet, 0, 2 * labels.length, this.view.buffer, 0);
    return labels;
  }

  destroy(): void {
    this.#querySet.destroy();
    this.view.buffer.destroy();
  }
}

/** Returns the milliseconds of each label, from the timestamps that `resolve` wrote to the view. */
export function timesByLabel(labels: readonly string[], data: ArrayBuffer): Record<string, number> {
  const stamps = new BigUint64Array(data, 0, 2 * labels.length);
  const times: Record<string, number> = {};
  labels.forEach((label, i) => {
    times[label] = (times[label] ?? 0) + Number(stamps[2 * i + 1] - stamps[2 * i]) / 1e6;
  });
  return times;
}
