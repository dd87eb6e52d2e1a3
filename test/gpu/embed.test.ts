import { expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { embed, type RowChunk } from '../../src/gpu/ops/embed.ts';
import { embedding } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectSame, f64, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

/** Returns a table [rows, C], split into buffers of `each` rows. */
function chunksOf(gpu: Gpu, table: Float32Array, C: number, each = table.length / C): RowChunk[] {
  const V = table.length / C;
  return Array.from({ length: Math.ceil(V / each) }, (_, i) => {
    const [first, end] = [i * each, Math.min(V, (i + 1) * each)];
    return { view: gpu.buffer('table', table.slice(first * C, end * C)), first, rows: end - first };
  });
}

async function check(
  gpu: Gpu,
  tokens: Uint32Array,
  table: Float32Array,
  C: number,
  run = gpu,
  chunkRows?: number,
): Promise<void> {
  const N = tokens.length;
  const x = roomy(gpu, 'x', N * C);
  embed(run, { tokens: gpu.buffer('tokens', tokens), table: chunksOf(gpu, table, C, chunkRows), x, N, C });
  expectSame(await readRoomy(gpu, x, N * C), embedding(f64(table), tokens, C));
}

test.each([
  [1, 1],
  [1, 64],
  [3, 21],
  [5, 13],
  [2, 65],
  [7, 127],
])('copies the right rows, N=%i C=%i', (N, C) =>
  withGpu(async (gpu) => {
    const [r, V] = [rng(N * 31 + C), 11];
    const tokens = Uint32Array.from({ length: N }, (_, n) => (n === 0 ? V - 1 : Math.floor(r.uniform() * V)));
    await check(gpu, tokens, r.normals(V * C), C);
  }),
);

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const N = Math.ceil(FOLD_THREADS / 61);
    const tokens = Uint32Array.from({ length: N }, (_, n) => (n * 7) % 13);
    await check(gpu, tokens, pattern(13 * 61), 61, oneThreadGroups(gpu));
  }));

test('a table in several buffers', () =>
  withGpu(async (gpu) => {
    const r = rng(5);
    const tokens = Uint32Array.from({ length: 40 }, (_, n) => (n * 7) % 13);
    await check(gpu, tokens, r.normals(13 * 21), 21, gpu, 4);
  }));

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    expect(() =>
      embed(gpu, { tokens: v(2), table: [{ view: v(12), first: 0, rows: 3 }], x: v(7), N: 2, C: 4 }),
    ).toThrow('embed x [N, C] needs 8 values (32 bytes) but got a view of 28 bytes of "small".');
  }));
