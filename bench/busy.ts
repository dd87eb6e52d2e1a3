/** Measures how long the device computes: every compute pass gets timestamps while a function runs. */

import type { Gpu } from '../src/gpu/device.ts';

const MAX_PASSES = 2048; // a query set can have at most 4096 timestamps

/**
 * Returns the seconds that the GPU spent in compute passes during `work`; undefined if the adapter has no timestamps or there were too many
 * passes.
 */
export async function busySeconds(gpu: Gpu, work: () => Promise<void>): Promise<number | undefined> {
  if (!gpu.adapter.features.includes('timestamp-query')) {
    await work();
    return undefined;
  }
  await gpu.idle();
  const { device } = gpu;
  const querySet = device.createQuerySet({ type: 'timestamp', count: 2 * MAX_PASSES });
  const prototype = GPUCommandEncoder.prototype;
  const begin = prototype.beginComputePass;
  let passes = 0;
  prototype.beginComputePass = function (this: GPUCommandEncoder, descriptor: GPUComputePassDescriptor = {}) {
    const at = 2 * passes++;
    if (passes > MAX_PASSES) return begin.call(this, descriptor);
    const timestampWrites = { querySet, beginningOfPassWriteIndex: at, endOfPassWriteIndex: at + 1 };
    return begin.call(this, { ...descriptor, timestampWrites });
  };
  try {
    await work();
    await gpu.idle();
  } finally {
    prototype.beginComputePass = begin;
  }
  const times = await readTimestamps(device, querySet, 2 * Math.min(passes, MAX_PASSES));
  querySet.destroy();
  return passes > MAX_PASSES ? undefined : times.reduce((sum, t, i) => sum + (i % 2 ? t : -t), 0) / 1e9;
}

/** Returns nanoseconds since the first GPU timestamp. */
async function readTimestamps(device: GPUDevice, querySet: GPUQuerySet, count: number): Promise<number[]> {
  if (count === 0) return [];
  const size = count * 8;
  const resolved = device.createBuffer({ size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  const staging = device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = device.createCommandEncoder();
  encoder.resolveQuerySet(querySet, 0, count, resolved, 0);
  encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const raw = [...new BigUint64Array(staging.getMappedRange().slice(0))];
  resolved.destroy();
  staging.destroy();
  return raw.map((t) => Number(t - raw[0]));
}
