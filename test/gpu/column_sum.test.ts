import { expect, test } from 'vitest';
import { columnSum } from '../../src/gpu/ops/column_sum.ts';
import { rng } from '../random.ts';
import { expectWithin, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, U, withRoom } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

async function check(x: Float32Array, old: Float32Array, fold = false): Promise<void> {
  const C = old.length;
  const N = x.length / C;
  const [want, size] = [Float64Array.from(old), Float64Array.from(old, Math.abs)];
  for (let i = 0; i < x.length; i++) {
    want[i % C] += x[i];
    size[i % C] += Math.abs(x[i]);
  }
  await withGpu(async (gpu) => {
    const y = withRoom(gpu, 'y', old);
    columnSum(fold ? oneThreadGroups(gpu) : gpu, { x: gpu.buffer('x', x), y, N, C });
    expectWithin(await readRoomy(gpu, y, C), want, (c) => (N + 1) * U * size[c]);
  });
}

test.each([
  [1, 1],
  [7, 63],
  [64, 64],
  [131, 65],
  [1031, 2],
])('adds the sums of N=%i rows to C=%i values', async (N, C) => {
  const r = rng(N * 31 + C);
  await check(r.normals(N * C), r.normals(C));
});

test('a grid folded over both dimensions', () => check(pattern(2 * FOLD_THREADS), pattern(FOLD_THREADS, 31), true));

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    expect(() => columnSum(gpu, { x: v(7), y: v(4), N: 2, C: 4 })).toThrow(
      'column_sum x [N, C] needs 8 values (32 bytes) but got a view of 28 bytes of "small".',
    );
  }));
