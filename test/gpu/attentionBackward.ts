/** The tests of the attention backward kernels, generic or printed for one head dim. */
import { test } from 'vitest';
import { attentionBwd, type AttentionForm } from '../../src/gpu/ops/attention.ts';
import * as reference from '../../src/model/reference/ops.ts';
import {
  type AttentionCase,
  attentionInputs,
  backwardSizes,
  describeCase,
  joinKv,
  scoreBound,
  skipUnless,
  weightError,
} from './attentionCases.ts';
import { expectSame, expectWithin, f64, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';

/** In float64 and in one form, which must give the bits of the tiled one. */
async function runAttentionBackward(c: AttentionCase, form: AttentionForm) {
  const { N, H, K, D } = c;
  const x = attentionInputs(c);
  const forward = reference.attention(f64(x.q), f64(x.k), f64(x.v), x.ranges, c);
  const [out, lse] = [Float32Array.from(forward.out), Float32Array.from(forward.lse)]; // as a kernel would leave them
  const given = { q: f64(x.q), k: f64(x.k), v: f64(x.v), out: f64(out), lse: f64(lse) };
  const want = reference.attentionBwd(f64(x.dout), given, x.ranges, c);
  const sizes = backwardSizes(c, x, f64(out), f64(lse));
  // p from a rounded lse, one exp; dp and delta are sums of D, then at most N * H / K terms are added up.
  const S = scoreBound(x.q, x.k, D);
  const error = weightError(1, D, S) + (2 * D + 2 * N * (H / K) + 16) * U;
  const got: Record<'dq' | 'dkv' | 'delta', Float32Array> = {
    dq: new Float32Array(),
    dkv: new Float32Array(),
    delta: new Float32Array(),
  };
  await withGpu(async (gpu) => {
    const views = {
      q: gpu.buffer('q', x.q),
      kv: gpu.buffer('kv', joinKv(x.k, x.v, K * D)),
      ranges: gpu.buffer('ranges', x.ranges),
      out: gpu.buffer('out', out),
      lse: gpu.buffer('lse', lse),
      dout: gpu.buffer('dout', x.dout),
      queryEnd: gpu.buffer('queryEnd', x.queryEnd),
    };
    const run = async (form: AttentionForm) => {
      const outputs = {
        dq: roomy(gpu, 'dq', N * H * D),
        dkv: roomy(gpu, 'dkv', N * 2 * K * D),
        delta: roomy(gpu, 'delta', N * H),
      };
      attentionBwd(gpu, { ...views, ...outputs, N, H, K, D, form });
      return {
        dq: await readRoomy(gpu, outputs.dq, N * H * D),
        dkv: await readRoomy(gpu, outputs.dkv, N * 2 * K * D),
        delta: await readRoomy(gpu, outputs.delta, N * H),
      };
    };
    Object.assign(got, await run(form));
    if (form === 'tiled') return;
    const tiled = await run('tiled');
    for (const name of ['dq', 'dkv', 'delta'] as const) expectSame(got[name], tiled[name]);
  });
  return { x, out, got, want, sizes, error };
}

export function testAttentionBwdQ(cases: AttentionCase[], form: AttentionForm = 'tiled', lanes = 0): void {
  test.for(cases.map((c) => [describeCase(c), c] as const))(
    'dq and delta match float64, %s',
    async ([, c], { skip }) => {
      await skipUnless(form, lanes, skip);
      const { x, out, got, want, sizes, error } = await runAttentionBackward(c, form);
      expectWithin(got.dq, want.dq, (i) => 1e-36 + error * sizes.dq[i]);
      const delta = Float64Array.from(got.delta, (_, row) => {
        let sum = 0;
        for (let d = 0; d < c.D; d++) sum += x.dout[row * c.D + d] * out[row * c.D + d];
        return sum;
      });
      expectWithin(got.delta, delta, (row) => (c.D + 1) * U * sizes.delta[row]);
    },
  );
}

export function testAttentionBwdKv(cases: AttentionCase[], form: AttentionForm = 'tiled', lanes = 0): void {
  test.for(cases.map((c) => [describeCase(c), c] as const))('dk and dv match float64, %s', async ([, c], { skip }) => {
    await skipUnless(form, lanes, skip);
    const { got, want, sizes, error } = await runAttentionBackward(c, form);
    const width = c.K * c.D;
    const join = (k: Float64Array, v: Float64Array) => joinKv(Float32Array.from(k), Float32Array.from(v), width);
    const bound = join(sizes.dk, sizes.dv);
    expectWithin(got.dkv, join(want.dk, want.dv), (i) => 1e-36 + error * bound[i]);
  });
}
