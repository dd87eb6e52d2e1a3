import { test } from 'vitest';
import { runAttentionBackward } from './attentionBackward.ts';
import { ATTENTION_CASES, describeCase, joinKv } from './attentionCases.ts';
import { expectWithin } from './check.ts';

test.each(ATTENTION_CASES.map((c) => [describeCase(c), c] as const))('dk and dv match float64, %s', async (_, c) => {
  const { got, want, sizes, error } = await runAttentionBackward(c);
  const width = c.K * c.D;
  const join = (k: Float64Array, v: Float64Array) => joinKv(Float32Array.from(k), Float32Array.from(v), width);
  const bound = join(sizes.dk, sizes.dv);
  expectWithin(got.dkv, join(want.dk, want.dv), (i) => 1e-36 + error * bound[i]);
});
