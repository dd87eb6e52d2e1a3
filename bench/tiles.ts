/** Times a matrix product with every tile that this adapter supports, in turn. The choice in src/gpu/ops/matmul.ts is based on it. */

import { MATMUL_TILES, namesOf } from '../kernels/tiles.ts';
import type { Gpu } from '../src/gpu/device.ts';
import { chooseMatmul, matmulNn, runsOn } from '../src/gpu/ops/matmul.ts';
import { noise } from './kernels.ts';
import type { Report } from './report.ts';
import { secondsOf } from '../src/extensions/limits/index.ts';

const ROWS = [1, 4, 8, 16, 32, 64, 256, 1024];

/** Columns and depth: of the headline model on a software adapter, of SmolLM2-135M and an adapter of rank 32 on hardware. */
const SOFTWARE = [[384, 128]];
const HARDWARE = [
  [960, 576],
  [3072, 576],
  [576, 1536],
  [32, 576],
  [49_152, 576],
];

/** Returns GFLOP/s by rows and tile: the best of `rounds` measurements, so that a short disturbance does not decide between two tiles. */
export async function benchTiles(gpu: Gpu, rounds: number): Promise<NonNullable<Report['tiles']>> {
  const tiles = namesOf(MATMUL_TILES).filter((tile) => runsOn(gpu, tile));
  const results: NonNullable<Report['tiles']> = [];
  const shapes = gpu.adapter.isSoftware ? SOFTWARE : HARDWARE;
  for (const [M, N, K] of ROWS.flatMap((rows) => shapes.map(([n, k]) => [rows, n, k]))) {
    const [x, b, y] = [
      gpu.buffer('bench.x', noise(M * K)),
      gpu.buffer('bench.b', noise(K * N)),
      gpu.buffer('bench.y', M * N * 4),
    ];
    const best = new Map(tiles.map((tile) => [tile, Infinity]));
    for (let i = 0; i < rounds; i++) {
      for (const variant of tiles) {
        const record = () => matmulNn(gpu, { x, b, y, M, N, K, variant });
        const seconds = await secondsOf(gpu, record, { rounds: 2, roundS: 0.02 });
        best.set(variant, Math.min(best.get(variant)!, seconds));
      }
    }
    const gflops = Object.fromEntries([...best].map(([tile, seconds]) => [tile, (2 * M * N * K) / seconds / 1e9]));
    results.push({ m: M, n: N, k: K, chosen: chooseMatmul(gpu, M, N, K), gflops });
    for (const view of [x, b, y]) gpu.free(view);
  }
  return results;
}
