import { expect, test } from 'vitest';
import { cast } from '../../src/gpu/ops/cast.ts';
import { rng } from '../random.ts';
import { expectSame, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, SIZES } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';
import { halfBits, halfBuffer, halfValue, readHalves, rounded, roomyHalves, withHalves } from './halfBuffers.ts';

test.each(SIZES)('floats to floats are a copy, n=%i', (n) =>
  withGpu(async (gpu) => {
    const [x, y] = [rng(n).normals(n + 3), roomy(gpu, 'y', n)];
    cast(gpu, { x: gpu.buffer('x', x), y, n, atX: 3 });
    expectSame(await readRoomy(gpu, y, n), x.slice(3));
  }),
);

test.for(SIZES)('to halves: the nearest; and back: exactly, n=%i', (n, { skip }) =>
  withHalves(skip, async (gpu) => {
    const x = rng(n).normals(n, 30);
    const y = roomyHalves(gpu, 'y', n);
    cast(gpu, { x: gpu.buffer('x', x), y, n });
    expectSame(await readHalves(gpu, y, n), rounded(x));
    const back = roomy(gpu, 'back', n);
    cast(gpu, { x: halfBuffer(gpu, 'half', x), y: back, n });
    expectSame(await readRoomy(gpu, back, n), rounded(x));
  }),
);

test('ends of the range: ties, the largest, infinity, NaN, and small values', ({ skip }) =>
  withHalves(skip, async (gpu) => {
    const x = Float32Array.of(1 + 2 ** -11, 1 + 3 * 2 ** -11, 65504, 65519, 65520, -1e30, NaN, 2 ** -14, -0, 2 ** -26);
    const y = roomyHalves(gpu, 'y', x.length);
    cast(gpu, { x: gpu.buffer('x', x), y, n: x.length });
    const got = await readHalves(gpu, y, x.length);
    expectSame(got.subarray(0, 9), rounded(x).subarray(0, 9));
    expect(got[9]).toBe(0);
  }));

test('from an odd element to an odd element, leaving the rest alone', ({ skip }) =>
  withHalves(skip, async (gpu) => {
    const x = rng(1).normals(41);
    const y = halfBuffer(gpu, 'y', new Float32Array(99).fill(7));
    cast(gpu, { x: gpu.buffer('x', x), y, n: 33, atX: 5, atY: 3 });
    const got = Float32Array.from(new Uint16Array((await gpu.read(y))[0]), halfValue).slice(0, 99);
    const want = new Float32Array(99).fill(7);
    want.set(rounded(x.slice(5, 38)), 3);
    expectSame(got, want);
  }));

test('a grid folded over both dimensions', ({ skip }) =>
  withHalves(skip, async (gpu) => {
    const [x, y] = [pattern(FOLD_THREADS), roomyHalves(gpu, 'y', FOLD_THREADS)];
    cast(oneThreadGroups(gpu), { x: gpu.buffer('x', x), y, n: FOLD_THREADS });
    expectSame(await readHalves(gpu, y, FOLD_THREADS), rounded(x));
  }));

test('every 16-bit float is read as its value', () => {
  for (let bits = 0; bits < 0x7c00; bits += 7) expect(halfBits(halfValue(bits))).toBe(bits);
});

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    expect(() => cast(gpu, { x: poisoned(gpu, 'small', 4), y: poisoned(gpu, 'y', 9), n: 3, atX: 2 })).toThrow(
      'cast x [atX + n] needs 5 values (20 bytes) but got a view of 16 bytes of "small".',
    );
  }));
