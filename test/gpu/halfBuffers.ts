/** Helpers for tests with 16-bit floats (halves): buffers, and conversions on the host. */
import { expect } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { asHalves, type View } from '../../src/gpu/view.ts';
import { testGpu, withGpu } from './gpu.ts';

/** Returns the nearest 16-bit float, ties to even; infinite beyond 65504. */
export function halfBits(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(size)) return 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, size === 0 ? -14 : Math.floor(Math.log2(size)));
  const units = size / 2 ** (exponent - 10);
  const down = Math.floor(units);
  const rest = units - down;
  const whole = down + (rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? 1 : 0);
  return sign | (whole + (exponent + 14) * 1024);
}

export function halfValue(bits: number): number {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** Returns the values rounded to the nearest 16-bit floats. */
export const rounded = (data: Float32Array): Float32Array => data.map((value) => halfValue(halfBits(value)));

/** Creates a buffer of 16-bit floats. Buffers consist of complete 32-bit words, so an odd count leaves one extra value: NaN. */
export function halfBuffer(gpu: Gpu, label: string, data: ArrayLike<number>): View {
  const bits = new Uint16Array(Math.ceil(data.length / 2) * 2).fill(0x7e00);
  for (let i = 0; i < data.length; i++) bits[i] = halfBits(data[i]);
  return asHalves(gpu.buffer(label, new Uint32Array(bits.buffer)));
}

/** Number of values after an output that a kernel must not change. */
const ROOM = 67;

/** Creates an output of n 16-bit floats, all NaN, followed by extra space. */
export const roomyHalves = (gpu: Gpu, label: string, n: number): View =>
  halfBuffer(gpu, label, new Float32Array(n + ROOM).fill(NaN));

/** Reads the first n 16-bit floats of an output, after checking that the extra space is unchanged. */
export async function readHalves(gpu: Gpu, view: View, n: number): Promise<Float32Array> {
  const all = Float32Array.from(new Uint16Array((await gpu.read(view))[0]), halfValue);
  for (let i = n; i < all.length; i++)
    if (!Number.isNaN(all[i])) expect.fail(`"${view.buffer.label}" was written at ${i}, past its ${n} halves.`);
  return all.slice(0, n);
}

/** Runs `body` if the adapter has shader-f16. Otherwise the test is skipped with a message. */
export async function withHalves(skip: (why: string) => never, body: (gpu: Gpu) => Promise<void>): Promise<void> {
  const gpu = await testGpu();
  if (!gpu.device.features.has('shader-f16')) skip('this adapter has no shader-f16');
  await withGpu(body);
}
