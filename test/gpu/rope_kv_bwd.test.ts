import { test } from 'vitest';
import { ropeKvBwd } from '../../src/gpu/ops/rope_kv.ts';
import { ropeBwd } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, f64, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';
import { joinHeads, randomRope, splitHeads } from './ropeCases.ts';

interface Case {
  N: number;
  H: number;
  K: number;
  D: number;
}

async function check({ N, H, K, D }: Case, dq: Float32Array, dkv: Float32Array, fold = false): Promise<void> {
  const P = 37;
  const { table, tables } = randomRope(P, D, N);
  const positions = Uint32Array.from({ length: N }, (_, n) => (n * 17 + 5) % P);
  const [dk, dv] = splitHeads(dkv, [K, K], N, D);
  const want = joinHeads([ropeBwd(f64(dq), positions, tables, D), ropeBwd(dk, positions, tables, D), dv], N);
  await withGpu(async (gpu) => {
    const dqkv = roomy(gpu, 'dqkv', want.length);
    const inputs = {
      dq: gpu.buffer('dq', dq),
      dkv: gpu.buffer('dkv', dkv),
      positions: gpu.buffer('positions', positions),
    };
    ropeKvBwd(fold ? oneThreadGroups(gpu) : gpu, { ...inputs, table: gpu.buffer('table', table), dqkv, N, H, K, D });
    const most = Math.max(...[dq, dkv].map((x) => x.reduce((max, y) => Math.max(max, Math.abs(y)), 0)));
    const isV = (i: number) => Math.floor(i / D) % (H + 2 * K) >= H + K;
    expectWithin(await readRoomy(gpu, dqkv, want.length), want, (i) => (isV(i) ? 0 : 3 * U * 2 * most));
  });
}

test.each([
  { N: 1, H: 1, K: 1, D: 2 },
  { N: 7, H: 2, K: 1, D: 8 },
  { N: 2, H: 4, K: 2, D: 6 },
  { N: 5, H: 3, K: 3, D: 14 },
  { N: 13, H: 7, K: 1, D: 128 },
])('rotates dq and dk back and copies dv: %o', async (sizes) => {
  const { N, H, K, D } = sizes;
  const r = rng(N * 31 + D);
  await check(sizes, r.normals(N * H * D), r.normals(N * 2 * K * D));
});

test('a grid folded over both dimensions', async () => {
  const N = Math.ceil(FOLD_THREADS / 31);
  await check({ N, H: 4, K: 1, D: 32 }, pattern(N * 4 * 32), pattern(N * 2 * 32, 31), true);
});
