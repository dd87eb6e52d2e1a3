import { test } from 'vitest';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { qkNorm, qkNormKernel } from '../../src/gpu/ops/qk_norm.ts';
import { rmsnorm } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { expectWithin, f64, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';
import { joinHeads, splitHeads } from './ropeCases.ts';

const EPS = 1e-6;

interface Case {
  N: number;
  H: number;
  K: number;
  D: number;
}

async function check({ N, H, K, D }: Case, qkv: Float32Array, weight: Float32Array): Promise<void> {
  const [q, k, v] = splitHeads(qkv, [H, K, K], N, D);
  const [gainQ, gainK] = [f64(weight.subarray(0, D)), f64(weight.subarray(D))];
  const [normedQ, normedK] = [rmsnorm(q, gainQ, EPS), rmsnorm(k, gainK, EPS)];
  const want = joinHeads([normedQ.y, normedK.y, v], N);
  const wantRstd = joinHeads([normedQ.rstd, normedK.rstd], N);
  await withGpu(async (gpu) => {
    const out = { y: roomy(gpu, 'y', want.length), rstd: roomy(gpu, 'rstd', wantRstd.length) };
    qkNorm(gpu, { qkv: gpu.buffer('qkv', qkv), weight: gpu.buffer('weight', weight), ...out, N, H, K, D, eps: EPS });
    const { LANES } = rowGrid(gpu);
    const rtol = ((D / LANES + Math.log2(LANES) + 2) / 2 + 12) * U; // like rmsnorm.test.ts
    const isV = (i: number) => Math.floor(i / D) % (H + 2 * K) >= H + K;
    expectWithin(await readRoomy(gpu, out.y, want.length), want, (i) => (isV(i) ? 0 : rtol * Math.abs(want[i])));
    expectWithin(await readRoomy(gpu, out.rstd, wantRstd.length), wantRstd, (i) => rtol * wantRstd[i]);
  });
}

test.each([
  { N: 1, H: 1, K: 1, D: 2 },
  { N: 7, H: 2, K: 1, D: 8 },
  { N: 2, H: 4, K: 2, D: 6 },
  { N: 5, H: 3, K: 3, D: 66 },
  { N: 13, H: 7, K: 1, D: 128 },
])('norms every q and k head with its gain and copies v: %o', async (sizes) => {
  const { N, H, K, D } = sizes;
  const r = rng(N * 31 + D);
  await check(sizes, r.normals(N * (H + 2 * K) * D, 3), r.normals(2 * D));
});

test('eps matters for tiny heads', () =>
  check({ N: 3, H: 2, K: 1, D: 8 }, rng(7).normals(96, 1e-4), rng(8).normals(16)));

test('workgroups past the last head write nothing', () =>
  withGpu(async (gpu) => {
    const out = { y: roomy(gpu, 'y', 3 * 8), rstd: roomy(gpu, 'rstd', 3 * 3) };
    const inputs = { qkv: gpu.buffer('qkv', rng(1).normals(200)), weight: gpu.buffer('weight', rng(2).normals(4)) };
    gpu.dispatch(qkNormKernel, { ...inputs, ...out }, { N: 3, H: 2, K: 1, D: 2, eps: EPS }, 17, rowGrid(gpu));
    await readRoomy(gpu, out.y, 3 * 8);
    await readRoomy(gpu, out.rstd, 3 * 3);
  }));
