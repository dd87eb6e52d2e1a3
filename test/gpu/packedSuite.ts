/**
 * Tests of one tile of the product with packed weights: the results equal those with weights unpacked first, bit for bit, and are close to
 * float64.
 */
import { test } from 'vitest';
import type { PackedVariant } from '../../kernels/tiles.ts';
import { PACKED_FORMATS, packedBytes, type PackedFormat } from '../../src/gpu/packedFormat.ts';
import type { Gpu, View } from '../../src/gpu/device.ts';
import { matmulNn, matmulNt } from '../../src/gpu/ops/matmul.ts';
import { matmulPacked } from '../../src/gpu/ops/matmulPacked.ts';
import { pack } from '../../src/gpu/ops/pack.ts';
import { unpack } from '../../src/gpu/ops/unpack.ts';
import { rng } from '../random.ts';
import { expectSame, expectWithin, readRoomy, roomy, U, withRoom } from './check.ts';
import { isFull } from './full.ts';
import { withGpu } from './gpu.ts';

/** [M, N, K]: one block of eight values; blocks that end within a row; row counts one short of, at and one past those of the tiles. */
const SHAPES = [
  [1, 8, 8],
  [3, 24, 40],
  [4, 256, 64],
  [9, 72, 16],
  [33, 136, 104],
  [65, 40, 8],
] as const;

interface Case {
  x: Float32Array;
  /** Packed weights in the layout [K, N] or, transposed, [N, K]. */
  packed: View;
  /** The unpacked values. */
  plain: View;
}

export function makePackedCase(gpu: Gpu, [M, N, K]: readonly [number, number, number], format: PackedFormat): Case {
  const r = rng(M + N * 7 + K * 11);
  const x = r.normals(M * K);
  const packed = gpu.buffer('packed', packedBytes(format, K * N));
  const plain = gpu.buffer('plain', K * N * 4);
  pack(gpu, { x: gpu.buffer('w', r.normals(K * N)), packed, n: K * N, format });
  unpack(gpu, { packed, y: plain, n: K * N, format });
  return { x, packed: { ...packed, packed: { format, elements: K * N } }, plain };
}

/** Every day one small tile reads every format, and the others one, because all tiles read values by the same code. */
const formatsOf = (tile: PackedVariant): readonly PackedFormat[] =>
  isFull || tile === 'subgroup4_4x8' ? PACKED_FORMATS : ['int8'];

export function testPackedTile(tile: PackedVariant): void {
  test.for(formatsOf(tile))(`%s: the bits of unpack-then-product, near float64`, async (format) => {
    await withGpu(async (gpu) => {
      for (const shape of SHAPES)
        for (const transposed of [false, true]) {
          const [M, N, K] = shape;
          const { x, packed, plain } = makePackedCase(gpu, shape, format);
          const [y, first] = [roomy(gpu, 'y', M * N), gpu.buffer('first', M * N * 4)];
          const args = { x: gpu.buffer('x', x), M, N, K };
          matmulPacked(gpu, { ...args, b: packed, y, transposed, tile });
          (transposed ? matmulNt : matmulNn)(gpu, { ...args, b: plain, y: first, variant: 'plain_4x1' });
          const got = await readRoomy(gpu, y, M * N);
          expectSame(got, await gpu.readF32(first));
          const w = await gpu.readF32(plain);
          const at = (k: number, n: number) => (transposed ? w[n * K + k] : w[k * N + n]);
          const [want, size] = [new Float64Array(M * N), new Float64Array(M * N)];
          for (let i = 0; i < M * N; i++)
            for (let k = 0; k < K; k++) {
              const term = x[Math.floor(i / N) * K + k] * at(k, i % N);
              want[i] += term;
              size[i] += Math.abs(term);
            }
          expectWithin(got, want, (i) => (K + 1) * U * size[i]);
        }
    });
  });

  test('bias, residual and accumulation, as the float32 product has them', async () => {
    await withGpu(async (gpu) => {
      const [M, N, K] = [5, 48, 24];
      const { x, packed, plain } = makePackedCase(gpu, [M, N, K], 'int8');
      const r = rng(9);
      const [bias, add] = [gpu.buffer('bias', r.normals(N)), gpu.buffer('add', r.normals(M * N))];
      const old = r.normals(M * N);
      for (const extra of [{ bias }, { add }, { accumulate: true }, { bias, accumulate: true }]) {
        const [y, want] = [withRoom(gpu, 'y', old), gpu.buffer('want', old)];
        const args = { x: gpu.buffer('x', x), M, N, K, ...extra };
        matmulPacked(gpu, { ...args, b: packed, y, tile });
        matmulNn(gpu, { ...args, b: plain, y: want, variant: 'plain_4x1' });
        expectSame(await readRoomy(gpu, y, M * N), await gpu.readF32(want));
      }
    });
  });
}
