/** Tests every tile of the matrix product that this adapter runs: each alone, then all together. */
import { describe, expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { MATMUL_TILES, type MatmulVariant, namesOf } from '../../kernels/tiles.ts';
import { chooseMatmul, matmulNn, runsOn } from '../../src/gpu/ops/matmul.ts';
import { prepareKernels } from '../../src/model/kernels/prepare.ts';
import { rng } from '../random.ts';
import { expectSame, readRoomy, withRoom } from './check.ts';
import { isFull } from './full.ts';
import { poisoned, testGpu, withGpu } from './gpu.ts';
import { testKernelTuning } from './kernelTuningSuite.ts';
import { LAYOUTS, product, testMatmulVariant } from './matmulSuite.ts';
import { tinyConfig } from './tinyModel.ts';

const adapter = await testGpu();

/** Everyday tests in Chromium: a tile of each kind. All others run in Node, on the same driver and compiler. */
const IN_CHROMIUM = ['plain_4x1', 'workgroup_2x2', 'subgroup4_4x4'];
const isEveryTile = isFull || !('document' in globalThis);
/** The other tiles in workgroup memory have the same code in other sizes. A software adapter takes seconds to compile them, and never uses them. */
const isWide = (variant: MatmulVariant) => variant.startsWith('workgroup') && variant !== 'workgroup_2x2';
const isTried = (variant: MatmulVariant) =>
  runsOn(adapter, variant) &&
  (isEveryTile || IN_CHROMIUM.includes(variant)) &&
  (isFull || !adapter.adapter.isSoftware || !isWide(variant));

for (const variant of namesOf(MATMUL_TILES))
  // lavapipe takes half a minute of processor time to compile SwiftShader's tiles, and minutes on a busy machine.
  describe.skipIf(!isTried(variant))(`matmul_${variant}`, () => testMatmulVariant(variant));

if (isEveryTile) describe('kernel tuning', testKernelTuning);

const posingAs = (summary: Partial<Gpu['adapter']>) =>
  ({ adapter: { ...adapter.adapter, ...summary }, isCompiling: () => false }) as Pick<
    Gpu,
    'adapter' | 'isCompiling'
  > as Gpu;

test.each(['nn', 'nt', 'tn'] as const)('every variant gives the same bits, %s', (layout) =>
  withGpu(async (gpu) => {
    const here = namesOf(MATMUL_TILES).filter(isTried);
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

test.each([
  ['older phones', false, 4, 4, ['plain_8x8', 'plain_4x4', 'subgroup4_16x4', 'subgroup4_8x4', 'subgroup4_4x4']],
  ['Intel', false, 8, 32, ['plain_8x8', 'plain_4x4', 'subgroup8_16x4', 'subgroup8_8x2']],
  ['no subgroups', false, 0, 0, ['plain_8x8', 'plain_4x4']],
] as const)('hardware runs no tile of more sums than it has registers for: %s', (_, isSoftware, least, most, tiles) => {
  const gpu = posingAs({ isSoftware, subgroupSize: least, subgroupMaxSize: most });
  const here = namesOf(MATMUL_TILES).filter((variant) => runsOn(gpu, variant));
  const everywhere = namesOf(MATMUL_TILES).filter((name) => name.startsWith('workgroup') || name === 'plain_4x1');
  expect(here.sort()).toEqual([...tiles, ...everywhere].sort());
  for (const M of [1, 40, 4000]) expect(here).toContain(chooseMatmul(gpu, M, 384));
});

test.runIf(isEveryTile)('products of any size use the kernels that were compiled ahead', () =>
  withGpu(async (gpu) => {
    await prepareKernels(gpu, tinyConfig, { rollout: true });
    const { pipelines } = gpu.counters;
    for (const M of [1, 5, 9, 17, 64])
      for (const N of [8, 64]) {
        const p = product([M, N, 8]);
        LAYOUTS.nn(gpu, p, gpu.buffer('y', M * N * 4), chooseMatmul(gpu, M, N));
      }
    await gpu.idle();
    expect(gpu.counters.pipelines).toBe(pipelines);
  }),
);

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
