/**
 * Measures matrix products with packed (quantized) weights, by number of rows, in three ways that run in turn: with float32 weights, with
 * weights unpacked before the product, and with weights unpacked inside the product.
 */

import type { Gpu, View } from '../src/gpu/device.ts';
import { matmulNn, matmulNt } from '../src/gpu/ops/matmul.ts';
import { matmulPacked } from '../src/gpu/ops/matmulPacked.ts';
import { pack } from '../src/gpu/ops/pack.ts';
import { unpack } from '../src/gpu/ops/unpack.ts';
import { PACKED_FORMATS, packedBytes } from '../src/gpu/packedFormat.ts';
import { noise } from './kernels.ts';
import type { Report } from './report.ts';
import { secondsOf } from '../src/extensions/limits/index.ts';

const ROWS = [1, 4, 16, 64, 256];
/** Shapes of weights: gate and up projection of SmolLM2-135M, and a part of its output head. */
const MATRICES = [
  { transposed: false, N: 3072, K: 576 },
  { transposed: true, N: 4096, K: 576 },
];

/** Returns milliseconds of each of the three ways: the best of `rounds` runs. */
export async function benchQuantized(gpu: Gpu, rounds: number): Promise<NonNullable<Report['quantized']>> {
  const results: NonNullable<Report['quantized']> = [];
  for (const { transposed, N, K } of MATRICES) {
    const plain = gpu.buffer('bench.b', noise(N * K));
    const scratch = gpu.buffer('bench.scratch', N * K * 4);
    const product = transposed ? matmulNt : matmulNn;
    const packed = PACKED_FORMATS.map((format): View => {
      const view = gpu.buffer(`bench.${format}`, packedBytes(format, N * K));
      pack(gpu, { x: plain, packed: view, n: N * K, format });
      return { ...view, packed: { format, elements: N * K } };
    });
    for (const M of ROWS) {
      const sizes = { x: gpu.buffer('bench.x', noise(M * K)), y: gpu.buffer('bench.y', M * N * 4), M, N, K };
      const ways = new Map([['float32', () => product(gpu, { ...sizes, b: plain })]]);
      for (const b of packed) {
        const { format, elements: n } = b.packed!;
        ways.set(`${format} first`, () => {
          unpack(gpu, { packed: b, y: scratch, n, format });
          product(gpu, { ...sizes, b: scratch });
        });
        ways.set(`${format} in product`, () => matmulPacked(gpu, { ...sizes, b, transposed }));
      }
      const best = new Map([...ways.keys()].map((way) => [way, Infinity]));
      for (let i = 0; i < rounds; i++)
        for (const [way, record] of ways)
          best.set(way, Math.min(best.get(way)!, 1e3 * (await secondsOf(gpu, record, { rounds: 1, roundS: 0.01 }))));
      results.push({ m: M, n: N, k: K, transposed, ms: Object.fromEntries(best) });
      for (const view of [sizes.x, sizes.y]) gpu.free(view);
    }
    for (const view of [plain, scratch, ...packed]) gpu.free(view);
  }
  return results;
}
