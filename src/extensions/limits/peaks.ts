/** Measures the limits of the adapter: arithmetic, copies, dispatches, read-backs. */

import type { Gpu } from '../../gpu/device.ts';
import { defineKernel } from '../../gpu/kernel.ts';
import code from './peak.wgsl?raw';
import { type Effort, secondsOf, settle } from './timing.ts';

const peakKernel = defineKernel({ name: 'bench_peak', code, read: [], write: ['y'], params: { rounds: 'u32' } });
const OPS_PER_ROUND = 2 * 16 * 12;

const halves = `enable f16;\n${code.replace('alias Real = f32;', 'alias Real = f16;')}`;
const peakKernelF16 = defineKernel({ ...peakKernel, name: 'bench_peak_f16', code: halves });

/** Returns GFLOP/s of multiply-adds on registers. @param work workgroups of a dispatch, and rounds of a thread */
export const peakGflops = (gpu: Gpu, effort: Effort, work = workOf(gpu)) => peakOf(gpu, effort, peakKernel, work);

/** Returns GFLOP/s with 16-bit floats; the device must support shader-f16. */
export const peakGflopsF16 = (gpu: Gpu, effort: Effort) => peakOf(gpu, effort, peakKernelF16, workOf(gpu));

const workOf = ({ adapter }: Gpu) =>
  adapter.isSoftware ? { groups: 64, rounds: 256 } : { groups: 8192, rounds: 4096 };

async function peakOf(
  gpu: Gpu,
  effort: Effort,
  kernel: typeof peakKernel,
  { groups, rounds }: { groups: number; rounds: number },
): Promise<number> {
  const y = gpu.buffer('bench.peak', (2 + groups * 64) * 4);
  gpu.write(y, new Float32Array([0.999, 0.001]));
  const seconds = await secondsOf(gpu, () => gpu.dispatch(kernel, { y }, { rounds }, groups), effort);
  gpu.free(y);
  return (groups * 64 * rounds * OPS_PER_ROUND) / seconds / 1e9;
}

/** Returns GB/s read plus written by a large copy. */
export async function copyGbPerS(
  gpu: Gpu,
  effort: Effort,
  bytes = gpu.adapter.isSoftware ? 64 << 20 : 512 << 20,
): Promise<number> {
  const [from, to] = [gpu.buffer('bench.from', bytes), gpu.buffer('bench.to', bytes)];
  const seconds = await secondsOf(gpu, () => gpu.copy(from, to), effort);
  gpu.free(from);
  gpu.free(to);
  return (2 * bytes) / seconds / 1e9;
}

/** Returns microseconds to run and to encode one empty dispatch, among a thousand in a pass. */
export async function dispatchCost(gpu: Gpu, rounds: number): Promise<{ dispatchUs: number; encodeUs: number }> {
  const y = gpu.buffer('bench.empty', (2 + 64) * 4);
  const count = 1000;
  const best = { dispatchUs: Infinity, encodeUs: Infinity };
  for (let i = 0; i <= rounds; i++) {
    const started = performance.now();
    for (let d = 0; d < count; d++) gpu.dispatch(peakKernel, { y }, { rounds: 0 }, 1);
    const encoded = performance.now();
    await settle(gpu);
    best.encodeUs = Math.min(best.encodeUs, ((encoded - started) / count) * 1000);
    best.dispatchUs = Math.min(best.dispatchUs, ((performance.now() - encoded) / count) * 1000);
  }
  gpu.free(y);
  return best;
}

/** Returns milliseconds from a request for four bytes to their arrival, with nothing else pending: the median of many. */
export async function mapMs(gpu: Gpu): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < 31; i++) {
    const started = performance.now();
    await settle(gpu);
    times.push(performance.now() - started);
  }
  return times.sort((a, b) => a - b)[15];
}
