/** Tests of the attention backward kernels, generic or generated for one head dim. */
import { test } from 'vitest';
import { attentionBwd, type AttentionForm } from '../../src/gpu/ops/attention.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import {
  type AttentionCase,
  attentionInputs,
  backwardSizes,
  describeCase,
  foldCase,
  joinKv,
  scoreBound,
  weightError,
} from './attentionCases.ts';
import { expectSame, expectWithin, f64, readRoomy, roomy, U } from './check.ts';
import { foldedByTwo } from './fold.ts';
import { withGpu } from './gpu.ts';

type Inputs = ReturnType<typeof attentionInputs> & { out: Float32Array; lse: Float32Array };

async function run({ N, H, K, D }: AttentionCase, x: Inputs, form: AttentionForm, fold = false) {
  const [dq, dkv, delta]: Float32Array[] = Array.from({ length: 3 }, () => new Float32Array());
  const got = { dq, dkv, delta };
  await withGpu(async (gpu) => {
    const views = {
      q: gpu.buffer('q', x.q),
      kv: gpu.buffer('kv', joinKv(x.k, x.v, K * D)),
      ranges: gpu.buffer('ranges', x.ranges),
      out: gpu.buffer('out', x.out),
      lse: gpu.buffer('lse', x.lse),
      dout: gpu.buffer('dout', x.dout),
      queryEnd: gpu.buffer('queryEnd', x.queryEnd),
    };
    const outputs = {
      dq: roomy(gpu, 'dq', N * H * D),
      dkv: roomy(gpu, 'dkv', N * 2 * K * D),
      delta: roomy(gpu, 'delta', N * H),
    };
    const record = () => attentionBwd(gpu, { ...views, ...outputs, N, H, K, D, form });
    if (fold) foldedByTwo(record);
    else record();
    got.dq = await readRoomy(gpu, outputs.dq, N * H * D);
    got.dkv = await readRoomy(gpu, outputs.dkv, N * 2 * K * D);
    got.delta = await readRoomy(gpu, outputs.delta, N * H);
  });
  return got;
}

function expectSameGradients(a: Awaited<ReturnType<typeof run>>, b: Awaited<ReturnType<typeof run>>): void {
  for (const name of ['dq', 'dkv', 'delta'] as const) expectSame(a[name], b[name]);
}

/** Returns the inputs with `out` and `lse` as a forward kernel would write them. */
function withForward(c: AttentionCase): Inputs {
  const x = attentionInputs(c);
  const { out, lse } = reference.attention(f64(x.q), f64(x.k), f64(x.v), x.ranges, c);
  return { ...x, out: Float32Array.from(out), lse: Float32Array.from(lse) };
}

/** Compares one form to float64 and, bit for bit, to the tiled form. */
async function runAttentionBackward(c: AttentionCase, form: AttentionForm) {
  const { N, H, K, D } = c;
  const x = withForward(c);
  const [out, lse] = [x.out, x.lse];
  const given = { q: f64(x.q), k: f64(x.k), v: f64(x.v), out: f64(out), lse: f64(lse) };
  const want = reference.attentionBwd(f64(x.dout), given, x.ranges, c);
  const sizes = backwardSizes(c, x, f64(out), f64(lse));
  // Rounding: p from a rounded lse has the error of one exp; dp and delta are sums of D terms. Then at most N * H / K terms are added.
  const S = scoreBound(x.q, x.k, D);
  const error = weightError(1, D, S) + (2 * D + 2 * N * (H / K) + 16) * U;
  const got = await run(c, x, form);
  if (form !== 'tiled') expectSameGradients(got, await run(c, x, 'tiled'));
  return { x, out, got, want, sizes, error };
}

export function testAttentionBwd(cases: AttentionCase[], form: AttentionForm): void {
  test.for(cases.map((c) => [describeCase(c), c] as const))('dq, delta, dk and dv match float64, %s', async ([, c]) => {
    const { x, out, got, want, sizes, error } = await runAttentionBackward(c, form);
    expectWithin(got.dq, want.dq, (i) => 1e-36 + error * sizes.dq[i]);
    const delta = Float64Array.from(got.delta, (_, row) => {
      let sum = 0;
      for (let d = 0; d < c.D; d++) sum += x.dout[row * c.D + d] * out[row * c.D + d];
      return sum;
    });
    expectWithin(got.delta, delta, (row) => (c.D + 1) * U * sizes.delta[row]);
    const width = c.K * c.D;
    const join = (k: Float64Array, v: Float64Array) => joinKv(Float32Array.from(k), Float32Array.from(v), width);
    const bound = join(sizes.dk, sizes.dv);
    expectWithin(got.dkv, join(want.dk, want.dv), (i) => 1e-36 + error * bound[i]);
  });
}

export function testAttentionBwdFold(D: number, form: AttentionForm): void {
  test('a grid folded over both dimensions gives the same bits', async () => {
    const x = withForward(foldCase(D));
    expectSameGradients(await run(foldCase(D), x, form, true), await run(foldCase(D), x, form));
  });
}
