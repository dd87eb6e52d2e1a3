import { test } from 'vitest';
import { RMSNORM_BLOCK_ROWS, rmsnormBwd } from '../../src/gpu/ops/rmsnorm.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import {
  abs64,
  expectWithin,
  f64,
  FOLD_THREADS,
  oneThreadGroups,
  pattern,
  readRoomy,
  roomy,
  U,
  withRoom,
} from './check.ts';
import { withGpu } from './gpu.ts';

async function check(
  x: Float32Array,
  dy: Float32Array,
  rstd: Float32Array,
  old: Float32Array,
  fold = false,
): Promise<void> {
  const [N, C] = [rstd.length, old.length];
  const blocks = Math.ceil(N / RMSNORM_BLOCK_ROWS);
  await withGpu(async (gpu) => {
    const weight = new Float32Array(C).fill(0.5);
    const dweight = withRoom(gpu, 'dweight', old);
    const partial = roomy(gpu, 'partial', blocks * C);
    rmsnormBwd(fold ? oneThreadGroups(gpu) : gpu, {
      x: gpu.buffer('x', x),
      weight: gpu.buffer('weight', weight),
      rstd: gpu.buffer('rstd', rstd),
      dy: gpu.buffer('dy', dy),
      dx: roomy(gpu, 'dx', N * C),
      dweight,
      partial,
      N,
      C,
    });
    const back = (a: Float64Array, b: Float64Array) => reference.rmsnormBwd(a, b, f64(weight), f64(rstd)).dweight;
    const want = back(f64(dy), f64(x)).map((g, c) => g + old[c]);
    const size = back(abs64(dy), abs64(x));
    await readRoomy(gpu, partial, blocks * C);
    // Rounding: two products, a block's sum, the sum of blocks, and the addition to the old value.
    const roundings = 3 + RMSNORM_BLOCK_ROWS + blocks;
    expectWithin(await readRoomy(gpu, dweight, C), want, (c) => roundings * U * (size[c] + Math.abs(old[c])));
  });
}

test.each([
  [1, 1],
  [63, 5],
  [64, 64],
  [65, 63],
  [131, 67],
  [1000, 3],
])('adds the gain gradient of N=%i rows of C=%i to what is there', async (N, C) => {
  const r = rng(N * 31 + C);
  await check(r.normals(N * C), r.normals(N * C), r.normals(N).map(Math.abs), r.normals(C));
});

test('a grid folded over both dimensions', async () => {
  const [N, C] = [2, FOLD_THREADS];
  await check(pattern(N * C), pattern(N * C, 31), Float32Array.of(0.7, 1.3), pattern(C, 17), true);
});
