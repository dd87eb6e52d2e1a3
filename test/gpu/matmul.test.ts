/** All variants of the matrix product together. */
import { expect, test } from 'vitest';
import { chooseMatmul, MATMUL_VARIANTS, matmulNn, type MatmulVariant, runsOn } from '../../src/gpu/ops/matmul.ts';
import { prepareKernels } from '../../src/model/kernels/prepare.ts';
import { rng } from '../random.ts';
import { expectSame, readRoomy, withRoom } from './check.ts';
import { poisoned, testGpu, withGpu } from './gpu.ts';
import { LAYOUTS, product } from './matmulSuite.ts';
import { tinyConfig } from './tinyModel.ts';

const VARIANTS = Object.keys(MATMUL_VARIANTS) as MatmulVariant[];

test.each(['nn', 'nt', 'tn'] as const)('every variant gives the same bits, %s', (layout) =>
  withGpu(async (gpu) => {
    const here = VARIANTS.filter((variant) => runsOn(gpu, variant));
    expect(here.length).toBeGreaterThan(1);
    for (const shape of [
      [1, 33, 131],
      [37, 67, 61],
      [66, 17, 3],
    ] as const) {
      const p = product(shape);
      const n = p.M * p.N;
      const old = rng(8).normals(n);
      const results = [];
      for (const variant of here) {
        const y = withRoom(gpu, 'y', old);
        LAYOUTS[layout](gpu, p, y, variant);
        results.push(await readRoomy(gpu, y, n));
      }
      for (const result of results) expectSame(result, results[0]);
    }
  }),
);

test('the variant chosen for this adapter can run on it, for few and for many rows', async () => {
  const gpu = await testGpu();
  for (const M of [1, 5, 8, 9, 16, 17, 32, 33, 1000])
    for (const N of [8, 64, 96]) expect(runsOn(gpu, chooseMatmul(gpu, M, N)), `M=${M} N=${N}`).toBe(true);
});

test('what is compiled ahead is what products of any size use', () =>
  withGpu(async (gpu) => {
    await prepareKernels(gpu, { ...tinyConfig, headDim: 32 }, { rollout: true });
    const { pipelines } = gpu.counters;
    for (const M of [1, 5, 9, 17, 64])
      for (const N of [8, 64]) {
        const p = product([M, N, 8]);
        LAYOUTS.nn(gpu, p, gpu.buffer('y', M * N * 4), chooseMatmul(gpu, M, N));
      }
    await gpu.idle();
    expect(gpu.counters.pipelines).toBe(pipelines);
  }));

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    const sizes = { M: 2, N: 3, K: 4 };
    expect(() => matmulNn(gpu, { x: v(8), b: v(11), y: v(6), ...sizes })).toThrow(
      'matmul b [K, N] needs 12 values (48 bytes) but got a view of 44 bytes of "small".',
    );
    expect(() => matmulNn(gpu, { x: v(7), b: v(12), y: v(6), ...sizes })).toThrow('matmul x [M, K] needs 8 values');
    expect(() => matmulNn(gpu, { x: v(8), b: v(12), y: v(5), ...sizes })).toThrow('matmul y [M, N] needs 6 values');
  }));
