import { test } from 'vitest';
import { scatterRows } from '../../src/gpu/ops/gather_rows.ts';
import { rng } from '../random.ts';
import { expectSame, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';

/** Rows that are not listed must keep their values. */
async function check(y: Float32Array, rows: Uint32Array, old: Float32Array, fold = false): Promise<void> {
  const R = rows.length;
  const C = y.length / R;
  const want = old.slice();
  rows.forEach((row, r) => want.set(y.subarray(r * C, (r + 1) * C), row * C));
  await withGpu(async (gpu) => {
    const x = withRoom(gpu, 'x', old);
    scatterRows(fold ? oneThreadGroups(gpu) : gpu, { x, rows: gpu.buffer('rows', rows), y: gpu.buffer('y', y), R, C });
    expectSame(await readRoomy(gpu, x, old.length), want);
  });
}

test.each([
  [1, 1],
  [3, 21],
  [1, 64],
  [13, 5],
  [7, 127],
])('writes R=%i rows of C=%i among twice as many', async (R, C) => {
  const r = rng(R * 31 + C);
  const rows = Uint32Array.from({ length: R }, (_, i) => 2 * (R - 1 - i) + 1);
  await check(r.normals(R * C), rows, r.normals(2 * R * C));
});

test('a grid folded over both dimensions', async () => {
  const R = Math.ceil(FOLD_THREADS / 61);
  const rows = Uint32Array.from({ length: R }, (_, i) => R - 1 - i);
  await check(pattern(R * 61), rows, new Float32Array(R * 61), true);
});
