/** Tests of one tile of the matrix product. */
import { expect, test } from 'vitest';
import { MATMUL_TILES, type MatmulVariant } from '../../kernels/tiles.ts';
import type { Gpu, View } from '../../src/gpu/device.ts';
import { gatedMatmul, isGated, matmulNn, matmulNt, matmulTn } from '../../src/gpu/ops/matmul.ts';
import { swiglu } from '../../src/gpu/ops/swiglu.ts';
import { rng } from '../random.ts';
import { expectSame, expectWithin, pattern, readRoomy, roomy, U, withRoom } from './check.ts';
import { foldedByTwo } from './fold.ts';
import { withGpu } from './gpu.ts';

/** Shapes: one output; one short of, at and one past every tile and unroll; long sums; single rows and columns. */
const SHAPES = [
  [1, 1, 1],
  [1, 67, 5],
  [63, 1, 3],
  [3, 15, 17],
  [4, 16, 4],
  [7, 33, 2],
  [16, 63, 8],
  [16, 64, 8],
  [17, 65, 13],
  [33, 31, 131],
  [65, 130, 7],
] as const;

/** Shapes for fused pairs of columns (gate and up): tiles of gate end before, at and after a tile of up. */
const GATED_SHAPES = [
  [1, 2, 5],
  [63, 6, 3],
  [3, 30, 17],
  [16, 128, 8],
  [17, 134, 13],
  [33, 62, 131],
  [65, 260, 7],
] as const;

interface Product {
  M: number;
  N: number;
  K: number;
  /** [M, K] */ x: Float32Array;
  /** [K, N] */ b: Float32Array;
}

export function product([M, N, K]: readonly [number, number, number]): Product {
  const r = rng(M * 961 + N * 31 + K);
  return { M, N, K, x: r.normals(M * K), b: r.normals(K * N) };
}

/** Returns x b in float64, and the same sum with the absolute value of every term. */
export function reference({ M, N, K, x, b }: Product): { want: Float64Array; size: Float64Array } {
  const [want, size] = [new Float64Array(M * N), new Float64Array(M * N)];
  for (let m = 0; m < M; m++)
    for (let n = 0; n < N; n++)
      for (let k = 0; k < K; k++) {
        want[m * N + n] += x[m * K + k] * b[k * N + n];
        size[m * N + n] += Math.abs(x[m * K + k] * b[k * N + n]);
      }
  return { want, size };
}

function transposed(x: Float32Array, rows: number): Float32Array {
  const cols = x.length / rows;
  return Float32Array.from({ length: x.length }, (_, i) => x[(i % rows) * cols + Math.floor(i / rows)]);
}

/** The layouts of a matrix product, and the op that computes each. `old` is the previous content of y, [M, N]. */
export const LAYOUTS = {
  nn: (gpu: Gpu, p: Product, y: View, variant: MatmulVariant, extra: { add?: View; bias?: View } = {}) =>
    matmulNn(gpu, { ...sizes(p), x: gpu.buffer('x', p.x), b: gpu.buffer('b', p.b), y, variant, ...extra }),
  nt: (gpu: Gpu, p: Product, y: View, variant: MatmulVariant, extra: { add?: View; bias?: View } = {}) =>
    matmulNt(gpu, {
      ...sizes(p),
      x: gpu.buffer('x', p.x),
      b: gpu.buffer('b', transposed(p.b, p.K)),
      y,
      variant,
      ...extra,
    }),
  tn: (gpu: Gpu, p: Product, y: View, variant: MatmulVariant) =>
    matmulTn(gpu, { ...sizes(p), a: gpu.buffer('a', transposed(p.x, p.M)), b: gpu.buffer('b', p.b), y, variant }),
};
const sizes = ({ M, N, K }: Product) => ({ M, N, K });

export function testMatmulVariant(variant: MatmulVariant): void {
  test.for(SHAPES)(`x b and x b^T match float64, M=%i N=%i K=%i`, ([M, N, K]) =>
    withGpu(async (gpu) => {
      const p = product([M, N, K]);
      const { want, size } = reference(p);
      for (const layout of ['nn', 'nt'] as const) {
        const y = roomy(gpu, 'y', M * N);
        LAYOUTS[layout](gpu, p, y, variant);
        // Rounding: K products and K - 1 sums, separate or fused.
        expectWithin(await readRoomy(gpu, y, M * N), want, (i) => (K + 1) * U * size[i]);
      }
    }),
  );

  test.for(SHAPES)(`a^T b is added to the old values, M=%i N=%i K=%i`, ([M, N, K]) =>
    withGpu(async (gpu) => {
      const p = product([M, N, K]);
      const { want, size } = reference(p);
      const old = rng(5).normals(M * N);
      const y = withRoom(gpu, 'y', old);
      LAYOUTS.tn(gpu, p, y, variant);
      const bound = (i: number) => (K + 2) * U * (size[i] + Math.abs(old[i]));
      expectWithin(
        await readRoomy(gpu, y, M * N),
        want.map((v, i) => v + old[i]),
        bound,
      );
    }),
  );

  test.for(SHAPES.slice(3, 8))(`bias and residual, M=%i N=%i K=%i`, ([M, N, K]) =>
    withGpu(async (gpu) => {
      const p = product([M, N, K]);
      const { want, size } = reference(p);
      const [bias, add] = [rng(6).normals(N), rng(7).normals(M * N)];
      for (const [extra, of] of [
        [{ bias: gpu.buffer('bias', bias) }, (i: number) => bias[i % N]],
        [{ add: gpu.buffer('add', add) }, (i: number) => add[i]],
      ] as const) {
        const y = roomy(gpu, 'y', M * N);
        LAYOUTS.nn(gpu, p, y, variant, extra);
        const bound = (i: number) => (K + 2) * U * (size[i] + Math.abs(of(i)));
        expectWithin(
          await readRoomy(gpu, y, M * N),
          want.map((v, i) => v + of(i)),
          bound,
        );
      }
    }),
  );

  if (isGated(MATMUL_TILES[variant]))
    test.for(GATED_SHAPES)(`SwiGLU in the product, M=%i N=%i K=%i`, ([M, N, K]) =>
      withGpu(async (gpu) => {
        const p = product([M, N, K]);
        const [x, b, gu] = [gpu.buffer('x', p.x), gpu.buffer('b', p.b), gpu.buffer('gu', M * N * 4)];
        const [want, y] = [roomy(gpu, 'want', (M * N) / 2), roomy(gpu, 'y', (M * N) / 2)];
        matmulNn(gpu, { M, N, K, x, b, y: gu, variant });
        swiglu(gpu, { gu, y: want, N: M, F: N / 2 });
        expect(gatedMatmul(gpu, { M, N, K, x, b, y, variant })).toBe(true);
        expectSame(await readRoomy(gpu, y, (M * N) / 2), await readRoomy(gpu, want, (M * N) / 2));
      }),
    );

  test(`a row gives the same bits whatever M is`, () =>
    withGpu(async (gpu) => {
      const p = product([37, 19, 29]);
      const whole = roomy(gpu, 'y', 37 * 19);
      LAYOUTS.nn(gpu, p, whole, variant);
      const all = await readRoomy(gpu, whole, 37 * 19);
      for (const m of [0, 1, 17, 36]) {
        const y = roomy(gpu, 'y', 19);
        LAYOUTS.nn(gpu, { ...p, M: 1, x: p.x.slice(m * 29, (m + 1) * 29) }, y, variant);
        expectSame(await readRoomy(gpu, y, 19), all.subarray(m * 19, (m + 1) * 19));
      }
    }));

  test('a grid folded over both dimensions', () =>
    withGpu(async (gpu) => {
      const tile = MATMUL_TILES[variant];
      const inGroup = 'depth' in tile ? 16 : tile.workgroup / (tile.lanes ?? gpu.adapter.subgroupSize); // tiles next to each other
      const M = 4 * inGroup * tile.rows + 1; // five workgroups
      const x = pattern(M);
      const y = roomy(gpu, 'y', M);
      const views = { x: gpu.buffer('x', x), b: gpu.buffer('b', Float32Array.of(3)), y };
      foldedByTwo(() => matmulNn(gpu, { ...views, M, N: 1, K: 1, variant }));
      expectSame(
        await readRoomy(gpu, y, M),
        x.map((v) => 3 * v),
      );
    }));
}
