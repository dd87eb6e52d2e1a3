/** Runs the attention backward op on a case; attention_bwd_q.test.ts and attention_bwd_kv.test.ts look at its outputs. */
import { attentionBwd } from '../../src/gpu/ops/attention.ts';
import * as reference from '../../src/model/reference.ts';
import {
  type AttentionCase,
  attentionInputs,
  backwardSizes,
  joinKv,
  scoreBound,
  weightError,
} from './attentionCases.ts';
import { f64, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';

export async function runAttentionBackward(c: AttentionCase) {
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
    const outputs = {
      dq: roomy(gpu, 'dq', N * H * D),
      dkv: roomy(gpu, 'dkv', N * 2 * K * D),
      delta: roomy(gpu, 'delta', N * H),
    };
    attentionBwd(gpu, { ...views, ...outputs, N, H, K, D });
    got.dq = await readRoomy(gpu, outputs.dq, N * H * D);
    got.dkv = await readRoomy(gpu, outputs.dkv, N * 2 * K * D);
    got.delta = await readRoomy(gpu, outputs.delta, N * H);
  });
  return { x, out, got, want, sizes, error };
}
