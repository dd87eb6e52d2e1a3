import { expect, test } from 'vitest';
import { swiglu } from '../../src/gpu/ops/swiglu.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, U } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

async function check(gu: Float32Array, N: number, fold = false): Promise<void> {
  const F = gu.length / N / 2;
  const half = (at: number) =>
    Float64Array.from({ length: N * F }, (_, i) => gu[Math.floor(i / F) * 2 * F + at + (i % F)]);
  const [gate, up] = [half(0), half(F)];
  const want = reference.swiglu(gate, up);
  await withGpu(async (gpu) => {
    const y = roomy(gpu, 'y', N * F);
    swiglu(fold ? oneThreadGroups(gpu) : gpu, { gu: gpu.buffer('gu', gu), y, N, F });
    // Rounding: exp(x) has an error of up to 3 + 2 |x| ulp of 2 U each, the division of 2.5. Denormals can become 0, so 1e-36.
    const rtol = (i: number) => (2 * (3 + 2 * Math.abs(gate[i])) + 5 + 3) * U;
    expectWithin(await readRoomy(gpu, y, N * F), want, (i) => 1e-36 + rtol(i) * Math.abs(want[i]));
  });
}

test.each([
  [1, 1],
  [3, 21],
  [1, 64],
  [5, 13],
  [7, 127],
])('matches float64 for N=%i F=%i', (N, F) => check(rng(N * 31 + F).normals(N * 2 * F, 3), N));

test('gates far out on both sides', () => check(Float32Array.of(-200, -90, -30, 30, 90, 200, 1, 2, 3, 4, 5, 6), 1));

test('a grid folded over both dimensions', () => check(pattern(2 * Math.ceil(FOLD_THREADS / 16) * 61), 61, true)); // 16 blocks of four rows

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    expect(() => swiglu(gpu, { gu: v(15), y: v(8), N: 2, F: 4 })).toThrow(
      'swiglu gu [N, 2F] needs 16 values (64 bytes) but got a view of 60 bytes of "small".',
    );
  }));
