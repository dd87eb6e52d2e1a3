/** The buffers in the host's memory: those that read-backs are mapped from, and those that data waits in for its place on the device. */

import type { GpuCounters } from './counters.ts';

interface StagingBuffer {
  buffer: GPUBuffer;
  /** A read-back is using it. */
  busy: boolean;
}

/** Bytes of the buffer that a read-back of so many bytes goes through: a power of two, 4096 at least. */
export const stagingBytes = (bytes: number): number => 2 ** Math.ceil(Math.log2(Math.max(bytes, 4096)));

/**
 * Owns the read-back buffers of a device: as many as there are read-backs at a time, each as large as the largest that went
 * through it. Counts them among the device's buffers and bytes.
 */
export class Staging {
  readonly #device: GPUDevice;
  readonly #counters: GpuCounters;
  #buffers: StagingBuffer[] = [];

  constructor(device: GPUDevice, counters: GpuCounters) {
    this.#device = device;
    this.#counters = counters;
  }

  /** A buffer of at least so many bytes, the caller's until `release`. Smaller ones that are free make way for a new one. */
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

  /** Waits for what was copied into it, and gives it out in pieces of so many bytes. Rejects when the device is lost. */
  async map({ buffer }: StagingBuffer, pieces: readonly number[]): Promise<ArrayBuffer[]> {
    const total = pieces.reduce((sum, bytes) => sum + bytes, 0);
    await buffer.mapAsync(GPUMapMode.READ, 0, total);
    this.#counters.mappedBytes += total;
    const mapped = buffer.getMappedRange(0, total);
    let at = 0;
    return pieces.map((bytes) => mapped.slice(at, (at += bytes)));
  }

  /** A buffer of its own with `data` in it, which is copied from; the caller gives it to `free`. */
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
