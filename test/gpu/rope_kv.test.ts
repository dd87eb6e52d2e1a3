import { expect, test } from 'vitest';
import { ropeKv } from '../../src/gpu/ops/rope_kv.ts';
import { rope } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, U } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';
import { randomRope, splitHeads } from './ropeCases.ts';

interface Case {
  N: number;
  H: number;
  K: number;
  D: number;
}

/** Checks a rotation, in which each pair rounds in two products and a sum. Values of v are only copied. */
async function check({ N, H, K, D }: Case, qkv: Float32Array, fold = false): Promise<void> {
  const P = 37;
  const { table, tables } = randomRope(P, D, N);
  const positions = Uint32Array.from({ length: N }, (_, n) => (n * 17 + 5) % P);
  const kvRows = Uint32Array.from({ length: N }, (_, n) => 2 * (N - 1 - n) + 1); // every other row, backwards
  const [q, k, v] = splitHeads(qkv, [H, K, K], N, D);
  const [wantQ, wantK] = [q, k].map((x) => rope(x, positions, tables, D));
  const wantKv = new Float64Array(2 * N * 2 * K * D).fill(NaN);
  kvRows.forEach((row, n) => {
    wantKv.set(wantK.subarray(n * K * D, (n + 1) * K * D), row * 2 * K * D);
    wantKv.set(v.subarray(n * K * D, (n + 1) * K * D), (row * 2 + 1) * K * D);
  });
  await withGpu(async (gpu) => {
    const out = { q: roomy(gpu, 'q', N * H * D), kv: roomy(gpu, 'kv', wantKv.length) };
    const inputs = { qkv: gpu.buffer('qkv', qkv), positions: gpu.buffer('positions', positions) };
    ropeKv(fold ? oneThreadGroups(gpu) : gpu, {
      ...inputs,
      kvRows: gpu.buffer('kvRows', kvRows),
      table: gpu.buffer('table', table),
      ...out,
      N,
      H,
      K,
      D,
    });
    const most = qkv.reduce((max, x) => Math.max(max, Math.abs(x)), 0);
    expectWithin(await readRoomy(gpu, out.q, N * H * D), wantQ, () => 3 * U * 2 * most);
    const kv = (await gpu.readF32(out.kv)).subarray(0, wantKv.length);
    const written = wantKv.map((x, i) => (Number.isNaN(x) ? (Number.isNaN(kv[i]) ? 0 : Infinity) : x));
    expectWithin(
      kv.map((x, i) => (Number.isNaN(wantKv[i]) ? 0 : x)),
      written,
      (i) => (Math.floor(i / (K * D)) % 2 === 1 ? 0 : 3 * U * 2 * most),
    );
  });
}

test.each([
  { N: 1, H: 1, K: 1, D: 2 },
  { N: 7, H: 2, K: 1, D: 8 },
  { N: 2, H: 4, K: 2, D: 6 },
  { N: 5, H: 3, K: 3, D: 14 },
  { N: 13, H: 7, K: 1, D: 128 },
])('rotates q and k, copies v and leaves other cache rows alone: %o', async (sizes) => {
  const { N, H, K, D } = sizes;
  await check(sizes, rng(N * 31 + D).normals(N * (H + 2 * K) * D));
});

test('a grid folded over both dimensions', async () => {
  const sizes = { N: Math.ceil(FOLD_THREADS / 31), H: 4, K: 1, D: 32 };
  await check(sizes, pattern(sizes.N * 6 * 32), true);
});

test('a buffer that is too small is refused before any GPU work', () =>
  withGpu((gpu) => {
    const v = (n: number) => poisoned(gpu, 'small', n);
    const views = { qkv: v(11), positions: v(2), kvRows: v(2), table: v(4), q: v(4), kv: v(8) };
    expect(() => ropeKv(gpu, { ...views, N: 2, H: 1, K: 1, D: 2 })).toThrow(
      'rope_kv qkv [N, (H + 2K) * D] needs 12 values (48 bytes) but got a view of 44 bytes of "small".',
    );
  }));
