/** Helpers of the kernel tests: outputs followed by extra space, and comparisons with an error bound for each element. */
import { expect } from 'vitest';
import type { Gpu, View } from '../../src/gpu/device.ts';
import { foldedByTwo } from './fold.ts';
import { isFull } from './full.ts';
import { poisoned } from './gpu.ts';
import { stub } from '../stub.ts';

/** Unit roundoff of f32, the largest relative error of one correctly rounded operation. */
export const U = 2 ** -24;

/** Sizes just below, at and just above the 64 threads of a workgroup, and primes. */
export const SIZES = [1, 2, 7, 63, 64, 65, 131];

/** Number of values after an output that a kernel must not change. There are more of them than a workgroup has threads. */
const ROOM = 67;

/**
 * Creates an output of n values, full of NaN, followed by extra space. WebGPU drops writes past the end of a buffer, so only extra space
 * makes such writes visible.
 */
export const roomy = (gpu: Gpu, label: string, n: number): View => poisoned(gpu, label, n + ROOM);

/**
 * Like `roomy`, but initialised with `data`, for outputs that are also read. The extra space contains a number: NaN + x is again NaN, which
 * would hide an unwanted `+=`.
 */
export function withRoom(gpu: Gpu, label: string, data: Float32Array): View {
  const all = new Float32Array(data.length + ROOM).fill(BEHIND);
  all.set(data);
  const view = gpu.buffer(label, all);
  numbered.add(view.buffer);
  return view;
}
const BEHIND = 777;
const numbered = new WeakSet<GPUBuffer>();

/** Reads the first n values of an output, after checking that the extra space is unchanged. */
export async function readRoomy(gpu: Gpu, view: View, n: number): Promise<Float32Array> {
  const all = await gpu.readF32(view);
  const behind = numbered.has(view.buffer) ? BEHIND : NaN;
  for (let i = n; i < all.length; i++)
    if (!Object.is(all[i], behind)) expect.fail(`"${view.buffer.label}" was written at ${i}, past its ${n} values.`);
  return all.slice(0, n);
}

/** Expects |actual - expected| <= bound(i) for every element; NaN never passes. */
export function expectWithin(actual: Float32Array, expected: ArrayLike<number>, bound: (i: number) => number): void {
  expect(actual.length, 'length').toBe(expected.length);
  const bad: string[] = [];
  let count = 0;
  for (let i = 0; i < actual.length; i++) {
    if (Math.abs(actual[i] - expected[i]) <= bound(i)) continue;
    if (count++ < 5)
      bad.push(`  [${i}] actual ${actual[i]} expected ${expected[i]} allowed ${bound(i).toExponential(2)}`);
  }
  if (count > 0) expect.fail(`${count} of ${actual.length} elements out of bounds\n${bad.join('\n')}`);
}

/** Expects bitwise equality of long arrays, with a short message. */
export function expectSame(actual: Float32Array | Uint32Array, expected: ArrayLike<number>): void {
  expect(actual.length, 'length').toBe(expected.length);
  for (let i = 0; i < actual.length; i++)
    if (!Object.is(actual[i], expected[i])) expect.fail(`[${i}] is ${actual[i]}, expected ${expected[i]}`);
}

/** Returns varied values in [-1, 1) that are fast to compute, for buffers of millions of elements. */
export function pattern(n: number, step = 7919): Float32Array {
  const out = new Float32Array(n);
  for (let i = 0; i < n; i++) out[i] = ((i * step) % 2048) / 1024 - 1;
  return out;
}

export const f64 = (x: ArrayLike<number>): Float64Array => Float64Array.from(x);
export const abs64 = (x: ArrayLike<number>): Float64Array => Float64Array.from(x, Math.abs);

/**
 * Number of threads. In --full it is larger than the number of workgroups in one grid dimension. Every day rmsnorm.test.ts has that many
 * workgroups, and other kernels have few, in a grid that is folded by two.
 */
export const FOLD_THREADS = isFull ? 65536 + 101 : 1001;

/** Returns a Gpu that runs kernels with workgroups of one thread, if the kernel allows it, in two grid dimensions for FOLD_THREADS threads. */
export function oneThreadGroups(gpu: Gpu): Gpu {
  const dispatch: Gpu['dispatch'] = (kernel, buffers, params, groups, overrides) => {
    const [count, own] = kernel.code.includes('override WG: u32 = 64u')
      ? [groups * 64, { ...overrides, WG: 1 }]
      : [groups, overrides];
    const record = () => gpu.dispatch(kernel, buffers, params, count, own);
    if (isFull) record();
    else foldedByTwo(record);
  };
  return withSoftwareGrid(gpu, true, dispatch); // one thread per sum
}

/** Returns a Gpu whose kernels get the grid of a software adapter, or of hardware, on any adapter. */
export const withSoftwareGrid = (gpu: Gpu, isSoftware: boolean, dispatch = gpu.dispatch.bind(gpu)): Gpu =>
  stub<Gpu>({ adapter: { ...gpu.adapter, isSoftware }, dispatch }); // all that an op uses

/**
 * Error bound of Newton-Schulz. A singular value can grow by a factor of 3.4445 per step, and so can its error, which consists of about `d`
 * roundings. There are 5 steps.
 */
export const orthogonalError = (d: number) => 3.4445 ** 5 * U * Math.sqrt(d) * 8;
