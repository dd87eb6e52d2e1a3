/** How long compute passes took by the GPU's own clock, summed by label. Only on adapters that have timestamps. */

import { newView, type View } from './view.ts';

/** Labelled passes between two reads; those beyond are not counted. */
const PASSES = 128;

/** Owns a device's timestamps: two for each of the labelled passes since the last read. Its maker destroys it. */
export class PassTimer {
  /** Passes that begin now count towards it; undefined = they are not timed. */
  label: string | undefined;
  /** Timestamps that `resolve` writes: [pass][begin, end], u64 nanoseconds. */
  readonly view: View;
  readonly #querySet: GPUQuerySet;
  #labels: string[] = [];

  /** The device must have the feature timestamp-query. */
  constructor(device: GPUDevice) {
    this.#querySet = device.createQuerySet({ label: 'pass times', type: 'timestamp', count: 2 * PASSES });
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    this.view = newView(device.createBuffer({ label: 'pass times', size: 16 * PASSES, usage }));
  }

  /** The descriptor of a pass about to begin; undefined if it is not timed. */
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

/** Milliseconds by label, from what `resolve` left in the view. */
export function timesByLabel(labels: readonly string[], data: ArrayBuffer): Record<string, number> {
  const stamps = new BigUint64Array(data, 0, 2 * labels.length);
  const times: Record<string, number> = {};
  labels.forEach((label, i) => {
    times[label] = (times[label] ?? 0) + Number(stamps[2 * i + 1] - stamps[2 * i]) / 1e6;
  });
  return times;
}
