import { test } from 'vitest';
import { copyColumns } from '../../src/gpu/ops/copy_columns.ts';
import { rng } from '../random.ts';
import { expectSame, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';

test.each([
  [1, 1, 0, 1, 0, 1],
  [3, 5, 2, 9, 0, 5],
  [7, 64, 0, 64, 65, 131],
  [63, 2, 1, 3, 4, 7],
  [2, 131, 128, 300, 1, 140],
])('R=%i C=%i from column %i of %i to %i of %i', (R, C, firstX, rowX, firstY, rowY) =>
  withGpu(async (gpu) => {
    const [data, old] = [rng(R * C).normals(R * rowX), rng(9).normals(R * rowY)];
    const y = withRoom(gpu, 'y', old);
    copyColumns(gpu, { x: gpu.buffer('x', data), y, R, C, firstX, rowX, firstY, rowY });
    const want = old.slice();
    for (let r = 0; r < R; r++) for (let c = 0; c < C; c++) want[r * rowY + firstY + c] = data[r * rowX + firstX + c];
    expectSame(await readRoomy(gpu, y, R * rowY), want);
  }),
);

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const R = Math.ceil(FOLD_THREADS / 3);
    const [data, y] = [pattern(R * 3), roomy(gpu, 'y', R * 3)];
    const sizes = { R, C: 3, firstX: 0, rowX: 3, firstY: 0, rowY: 3 };
    copyColumns(oneThreadGroups(gpu), { x: gpu.buffer('x', data), y, ...sizes });
    expectSame(await readRoomy(gpu, y, R * 3), data);
  }));
