import { test } from 'vitest';
import { gatherRows } from '../../src/gpu/ops/gather_rows.ts';
import { embedding } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectSame, f64, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy } from './check.ts';
import { withGpu } from './gpu.ts';

async function check(x: Float32Array, rows: Uint32Array, C: number, fold = false): Promise<void> {
  const R = rows.length;
  await withGpu(async (gpu) => {
    const y = roomy(gpu, 'y', R * C);
    gatherRows(fold ? oneThreadGroups(gpu) : gpu, { x: gpu.buffer('x', x), rows: gpu.buffer('rows', rows), y, R, C });
    expectSame(await readRoomy(gpu, y, R * C), embedding(f64(x), rows, C));
  });
}

test.each([
  [1, 1],
  [3, 21],
  [1, 64],
  [13, 5],
  [7, 127],
])('copies R=%i rows of C=%i, repeats and the last row among them', async (R, C) => {
  const [r, N] = [rng(R * 31 + C), 9];
  const rows = Uint32Array.from({ length: R }, (_, i) => (i === 0 ? N - 1 : Math.floor(r.uniform() * N)));
  await check(r.normals(N * C), rows, C);
});

test('a grid folded over both dimensions', () => {
  const R = Math.ceil(FOLD_THREADS / 61);
  return check(
    pattern(13 * 61),
    Uint32Array.from({ length: R }, (_, i) => (i * 7) % 13),
    61,
    true,
  );
});
