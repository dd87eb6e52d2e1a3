/** Buffers in host memory. Read-backs are mapped from them, and uploads wait in them to be copied to the device. */

import type { GpuCounters } from './counters.ts';

interface StagingBuffer {
  buffer: GPUBuffer;
  /** True while a read-back uses the buffer. */
  busy: boolean;
}

/** Bytes of the buffer for a read-back of `bytes` bytes: a power of two, at least 4096. */
export const stagingBytes = (bytes: number): number => 2 ** Math.ceil(Math.log2(Math.max(bytes, 4096)));

/**
 * Owns the read-back buffers of a device. Keeps as many as were in use at the same time, and counts them in the device's buffers and bytes.
 */
export class Staging {
  readonly #device: GPUDevice;
  readonly #counters: GpuCounters;
  #buffers: StagingBuffer[] = [];

  constructor(device: GPUDevice, counters: GpuCounters) {
    this.#device = device;
    this.#counters = counters;
  }

  /**
   * Returns a free buffer of at least `bytes` bytes, which belongs to the caller until `release`. If a new buffer is needed, it replaces
   * smaller free ones.
   */
  take(bytes: number): StagingBuffer {
    const free = this.#buffers.find((s) => !s.busy && s.buffer.size >= bytes);
    if (free) {
      free.busy = true;
      return free;
    }
    for (const { buffer } of this.#buffers.filter((s) => !s.busy)) {
      this.#count(-1, buffer.size);
      buffer.destroy();
    }
    const size = stagingBytes(bytes);
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const made = { buffer: this.#device.createBuffer({ label: 'read-back', size, usage }), busy: true };
    this.#count(1, size);
    this.#buffers = [...this.#buffers.filter((s) => s.busy), made];
    return made;
  }

  /** Waits for the data that was copied into the buffer, and returns it in pieces of the given sizes. Rejects when the device is lost. */
  async map({ buffer }: StagingBuffer, pieces: readonly number[]): Promise<ArrayBuffer[]> {
    const total = pieces.reduce((sum, bytes) => sum + bytes, 0);
    await buffer.mapAsync(GPUMapMode.READ, 0, total);
    this.#counters.mappedBytes += total;
    const mapped = buffer.getMappedRange(0, total);
    let at = 0;
    return pieces.map((bytes) => mapped.slice(at, (at += bytes)));
  }

  /** Creates a buffer with `data`, from which it can be copied to the device. The caller must pass the buffer to `free`. */
  upload(label: string, data: ArrayBuffer): GPUBuffer {
    const usage = GPUBufferUsage.MAP_WRITE | GPUBufferUsage.COPY_SRC;
    const buffer = this.#device.createBuffer({ label, size: data.byteLength, usage, mappedAtCreation: true });
    new Uint8Array(buffer.getMappedRange()).set(new Uint8Array(data));
    buffer.unmap();
    this.#count(1, data.byteLength);
    return buffer;
  }

  free(buffer: GPUBuffer): void {
    this.#count(-1, buffer.size);
    buffer.destroy();
  }

  release(staging: StagingBuffer): void {
    if (staging.buffer.mapState !== 'unmapped') staging.buffer.unmap();
    staging.busy = false;
  }

  #count(buffers: 1 | -1, size: number): void {
    this.#counters.buffers += buffers;
    this.#counters.bytes += buffers * size;
    this.#counters.stagingBytes += buffers * size;
  }
}
