import { expect, test } from 'vitest';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { rmsnorm, rmsnormKernel } from '../../src/gpu/ops/rmsnorm.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { expectClose } from '../close.ts';
import { rng } from '../random.ts';
import { expectSame, f64, readRoomy, roomy, U } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

const EPS = 1e-6;

/**
 * Rounding: half of the longest chain of additions in a sum of C terms over `lanes` threads (half because of the root), plus division 5,
 * inverseSqrt 4, products 3.
 */
const rtol = (C: number, lanes: number) => ((C / lanes + Math.log2(lanes) + 2) / 2 + 12) * U;

async function check(x: Float32Array, weight: Float32Array): Promise<void> {
  const C = weight.length;
  const N = x.length / C;
  await withGpu(async (gpu) => {
    const out = { y: roomy(gpu, 'y', N * C), rstd: roomy(gpu, 'rstd', N) };
    rmsnorm(gpu, { x: gpu.buffer('x', x), weight: gpu.buffer('weight', weight), ...out, N, C, eps: EPS });
    const want = reference.rmsnorm(f64(x), f64(weight), EPS);
    const tolerance = { rtol: rtol(C, rowGrid(gpu).LANES) };
    expectClose(await readRoomy(gpu, out.y, N * C), want.y, tolerance);
    expectClose(await readRoomy(gpu, out.rstd, N), want.rstd, tolerance);
  });
}

test.each([
  { N: 1, C: 1, why: 'smallest' },
  { N: 5, C: 3, why: 'C just under a software row' },
  { N: 3, C: 63, why: 'C just under the workgroup' },
  { N: 3, C: 64, why: 'C equal to the workgroup' },
  { N: 3, C: 65, why: 'C just over the workgroup' },
  { N: 2, C: 1536, why: 'the width of Qwen2.5-1.5B' },
  { N: 65537, C: 3, why: 'more rows than one grid dimension holds' },
])('matches float64 for N=$N C=$C ($why)', async ({ N, C }) => {
  const r = rng(N * 31 + C);
  await check(r.normals(N * C, 3), r.normals(C));
});

test('a zero row stays zero and rstd is 1/sqrt(eps)', () => check(new Float32Array(8), new Float32Array(8).fill(1)));

test('eps matters for tiny rows', () => check(rng(7).normals(64, 1e-4), new Float32Array(64).fill(1)));

test('a row gives the same bits alone and among others', () =>
  withGpu(async (gpu) => {
    const [N, C] = [9, 131];
    const r = rng(4);
    const [x, weight] = [r.normals(N * C), gpu.buffer('weight', r.normals(C))];
    const run = async (rows: Float32Array) => {
      const n = rows.length / C;
      const out = { y: poisoned(gpu, 'y', rows.length), rstd: poisoned(gpu, 'rstd', n) };
      rmsnorm(gpu, { x: gpu.buffer('x', rows), weight, ...out, N: n, C, eps: EPS });
      return gpu.readF32(out.y);
    };
    const together = await run(x);
    for (let n = 0; n < N; n++)
      expectSame(await run(x.slice(n * C, (n + 1) * C)), together.subarray(n * C, (n + 1) * C));
  }));

test('workgroups past the last row write nothing', () =>
  withGpu(async (gpu) => {
    const out = { y: poisoned(gpu, 'y', 5 * 4), rstd: poisoned(gpu, 'rstd', 5) };
    const x = gpu.buffer('x', rng(1).normals(5 * 4));
    const buffers = { x, weight: gpu.buffer('weight', new Float32Array(4).fill(1)), ...out };
    gpu.dispatch(rmsnormKernel, buffers, { N: 3, C: 4, eps: EPS }, 5, rowGrid(gpu));
    expect([...(await gpu.readF32(out.y))].map(Number.isNaN).lastIndexOf(false)).toBe(3 * 4 - 1);
    expect([...(await gpu.readF32(out.rstd))].map(Number.isNaN)).toEqual([false, false, false, true, true]);
  }));

test('rejects a buffer of the wrong size before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    expect(() => rmsnorm(gpu, { x: v(7), weight: v(4), y: v(8), rstd: v(2), N: 2, C: 4, eps: EPS })).toThrow(
      'rmsnorm x [N, C] needs 8 values (32 bytes) but got a view of 28 bytes of "small".',
    );
  }));
