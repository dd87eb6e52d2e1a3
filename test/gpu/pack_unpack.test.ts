/** Tests packing and unpacking of weights: the resulting values, their size, and that neighbouring values stay unchanged. */
import { describe, expect, test } from 'vitest';
import type { View } from '../../src/gpu/device.ts';
import { pack } from '../../src/gpu/ops/pack.ts';
import { unpack, unpackRows } from '../../src/gpu/ops/unpack.ts';
import { PACKED_FORMATS, packedBytes, type PackedFormat } from '../../src/gpu/packedFormat.ts';
import { quantize } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectSame, expectWithin, f64, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy } from './check.ts';
import { withGpu } from './gpu.ts';

const SIZES = [1, 31, 32, 33, 64, 1000, 2049];

/**
 * Returns the resulting values in float64, and the error bound of f32: a value halfway between two quantization steps can round to either.
 */
function expected(format: PackedFormat, x: Float32Array): { values: Float64Array; allowed: (i: number) => number } {
  if (format === 'float16') return { values: f64(x), allowed: (i) => Math.max(Math.abs(x[i]) * 2 ** -11, 2 ** -25) };
  const { values, scales } = quantize(f64(x), format === 'int8' ? 8 : 4);
  const onEdge = (i: number) => Math.abs((Math.abs(x[i] / scales[i]) % 1) - 0.5) < 1e-3;
  return { values, allowed: (i) => scales[i] * (onEdge(i) ? 1.001 : 1e-5) };
}

describe.each(PACKED_FORMATS)('%s', (format) => {
  test.each(SIZES)('n = %i: the unpacked values, and nothing behind them changes', (n) =>
    withGpu(async (gpu) => {
      const x = rng(n).normals(n, 0.3);
      x[0] = 0;
      const words = packedBytes(format, n) / 4;
      const [packed, y] = [roomy(gpu, 'packed', words), roomy(gpu, 'y', n)];
      pack(gpu, { x: gpu.buffer('x', x), packed, n, format });
      await readRoomy(gpu, packed, words);
      unpack(gpu, { packed, y, n, format });
      const { values, allowed } = expected(format, x);
      expectWithin(await readRoomy(gpu, y, n), values, allowed);
    }),
  );

  test('a block of zeros, one of equal values, and the largest of either sign', () =>
    withGpu(async (gpu) => {
      const x = Float32Array.from({ length: 128 }, (_, i) => [0, 0.25, i % 2 ? -1 : 0.5, i % 2 ? 1 : -0.5][i >> 5]);
      const [packed, y] = [gpu.buffer('packed', packedBytes(format, 128)), roomy(gpu, 'y', 128)];
      pack(gpu, { x: gpu.buffer('x', x), packed, n: 128, format });
      unpack(gpu, { packed, y, n: 128, format });
      expectWithin(await readRoomy(gpu, y, 128), x, () => 0);
    }));

  test('rows of a table in two buffers', () =>
    withGpu(async (gpu) => {
      const [V, C, split] = [13, 21, 5];
      const table = rng(7).normals(V * C);
      const tokens = Uint32Array.from({ length: 30 }, (_, n) => (n * 7) % V);
      const y = roomy(gpu, 'y', tokens.length * C);
      const whole = new Float32Array(V * C);
      for (const [first, rows] of [
        [split, V - split],
        [0, split], // last, so that a row too many would be visible
      ]) {
        const part = table.slice(first * C, (first + rows) * C);
        const packed: View = gpu.buffer('packed', packedBytes(format, part.length));
        const plain = gpu.buffer('plain', part.length * 4);
        pack(gpu, { x: gpu.buffer('x', part), packed, n: part.length, format });
        unpack(gpu, { packed, y: plain, n: part.length, format });
        unpackRows(gpu, { packed, tokens: gpu.buffer('tokens', tokens), y, N: 30, C, first, rows, format });
        whole.set(await gpu.readF32(plain), first * C);
      }
      const want = Array.from(tokens).flatMap((t) => [...whole.subarray(t * C, (t + 1) * C)]);
      expectSame(await readRoomy(gpu, y, tokens.length * C), want);
    }));

  test('a grid folded over both dimensions', () =>
    withGpu(async (gpu) => {
      const n = FOLD_THREADS * 32;
      const x = pattern(n);
      const run = oneThreadGroups(gpu);
      const [packed, y] = [gpu.buffer('packed', packedBytes(format, n)), gpu.buffer('y', n * 4)];
      pack(run, { x: gpu.buffer('x', x), packed, n, format });
      unpack(gpu, { packed, y, n, format });
      const got = await gpu.readF32(y);
      const { values, allowed } = expected(format, x.slice(n - 64));
      expectWithin(got.slice(n - 64), values, allowed);
      for (const view of [packed, y]) gpu.free(view);
    }));
});

test('the sizes that the plan counts on', () => {
  expect(PACKED_FORMATS.map((format) => packedBytes(format, 64))).toEqual([128, 72, 40]);
  expect(packedBytes('int4', 33)).toBe(40);
});
