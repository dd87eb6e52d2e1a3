import { test } from 'vitest';
import { runAttentionBackward } from './attentionBackward.ts';
import { ATTENTION_CASES, describeCase } from './attentionCases.ts';
import { expectWithin, U } from './check.ts';

test.each(ATTENTION_CASES.map((c) => [describeCase(c), c] as const))('dq and delta match float64, %s', async (_, c) => {
  const { x, out, got, want, sizes, error } = await runAttentionBackward(c);
  expectWithin(got.dq, want.dq, (i) => 1e-36 + error * sizes.dq[i]);
  const delta = Float64Array.from(got.delta, (_, row) => {
    let sum = 0;
    for (let d = 0; d < c.D; d++) sum += x.dout[row * c.D + d] * out[row * c.D + d];
    return sum;
  });
  expectWithin(got.delta, delta, (row) => (c.D + 1) * U * sizes.delta[row]);
});
