/** Tests both parts of the backward pass of the q/k norm: dqkv in place (qk_norm_bwd) and the gains (qk_norm_bwd_weight). */
import { test } from 'vitest';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { qkNormBwd, qkNormBwdKernel } from '../../src/gpu/ops/qk_norm.ts';
import { RMSNORM_BLOCK_ROWS } from '../../src/gpu/ops/rmsnorm.ts';
import { rmsnorm, rmsnormBwd } from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import { abs64, expectWithin, f64, readRoomy, roomy, U, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';
import { joinHeads, splitHeads } from './ropeCases.ts';

interface Case {
  N: number;
  H: number;
  K: number;
  D: number;
}

async function check(sizes: Case, qkv: Float32Array, dqkv: Float32Array): Promise<void> {
  const { N, H, K, D } = sizes;
  const r = rng(D);
  const [weight, old] = [r.normals(2 * D), r.normals(2 * D)];
  const gains = [weight.subarray(0, D), weight.subarray(D)];
  const x = splitHeads(qkv, [H, K, K], N, D);
  const dy = splitHeads(dqkv, [H, K, K], N, D);
  const rstds = gains.map((gain, s) => Float32Array.from(rmsnorm(x[s], f64(gain), 1e-6).rstd));
  const back = gains.map((gain, s) => rmsnormBwd(dy[s], x[s], f64(gain), f64(rstds[s])));
  // Rounding errors are relative to these: the terms of dx with the absolute value of every product.
  const size = gains.map((gain, s) => rmsnormBwd(abs64(dy[s]), abs64(x[s]), abs64(gain), f64(rstds[s])).dweight);
  const want = joinHeads([back[0].dx, back[1].dx, dy[2]], N);
  const wantWeight = [...back[0].dweight, ...back[1].dweight].map((g, i) => g + old[i]);
  const blocks = Math.ceil(N / RMSNORM_BLOCK_ROWS);
  await withGpu(async (gpu) => {
    const out = withRoom(gpu, 'dqkv', dqkv);
    const partial = roomy(gpu, 'partial', blocks * 2 * D);
    const dweight = withRoom(gpu, 'dweight', old);
    const rstd = gpu.buffer('rstd', Float32Array.from(joinHeads(rstds.map(f64), N)));
    const inputs = { qkv: gpu.buffer('qkv', qkv), weight: gpu.buffer('weight', weight), rstd };
    qkNormBwd(gpu, { ...inputs, dqkv: out, dweight, partial, ...sizes });
    const roundings = D / rowGrid(gpu).LANES + 8 + 13;
    const bound = headBounds(sizes, qkv, dqkv, weight, joinHeads(rstds.map(f64), N));
    expectWithin(await readRoomy(gpu, out, want.length), want, (i) => roundings * U * bound[i]);
    await readRoomy(gpu, partial, blocks * 2 * D);
    const most = [...size[0], ...size[1]];
    const terms = 3 + RMSNORM_BLOCK_ROWS * Math.max(H, K) + blocks;
    expectWithin(await readRoomy(gpu, dweight, 2 * D), wantWeight, (i) => terms * U * (most[i] + Math.abs(old[i])));
  });
}

/** Returns the absolute terms rstd (|w dy| + |x| rstd^2 mean |w dy x|) for q and k, and 0 for v, which must not change. */
function headBounds(
  { N, H, K, D }: Case,
  qkv: Float32Array,
  dqkv: Float32Array,
  weight: Float32Array,
  rstd: Float64Array,
) {
  const bound = new Float64Array(qkv.length);
  for (let n = 0; n < N; n++)
    for (let h = 0; h < H + K; h++) {
      const at = (n * (H + 2 * K) + h) * D;
      const gain = h < H ? 0 : D;
      const scale = rstd[n * (H + K) + h];
      let dot = 0;
      for (let d = 0; d < D; d++) dot += Math.abs(weight[gain + d] * dqkv[at + d] * qkv[at + d]);
      for (let d = 0; d < D; d++)
        bound[at + d] =
          scale * (Math.abs(weight[gain + d] * dqkv[at + d]) + (Math.abs(qkv[at + d]) * scale ** 2 * dot) / D);
    }
  return bound;
}

test.each([
  { N: 1, H: 1, K: 1, D: 2 },
  { N: 7, H: 2, K: 1, D: 8 },
  { N: 64, H: 4, K: 2, D: 6 },
  { N: 65, H: 3, K: 3, D: 66 },
  { N: 131, H: 7, K: 1, D: 128 },
])('matches float64, leaves dv alone and adds to the gains: %o', async (sizes) => {
  const { N, H, K, D } = sizes;
  const r = rng(N * 31 + D);
  await check(sizes, r.normals(N * (H + 2 * K) * D, 3), r.normals(N * (H + 2 * K) * D));
});

test('workgroups past the last head write nothing', () =>
  withGpu(async (gpu) => {
    const r = rng(1);
    const dqkv = withRoom(gpu, 'dqkv', r.normals(3 * 8));
    const v = (n: number) => gpu.buffer('in', r.normals(n));
    const views = { qkv: v(200), weight: v(4), rstd: v(50), dqkv };
    gpu.dispatch(qkNormBwdKernel, views, { N: 3, H: 2, K: 1, D: 2 }, 17, rowGrid(gpu));
    await readRoomy(gpu, dqkv, 3 * 8);
  }));
