import { expect, test } from 'vitest';
import { attention } from '../../src/gpu/ops/attention.ts';
import * as reference from '../../src/model/reference/ops.ts';
import { GENERIC_CASES } from './attentionCases.ts';
import { runAttention, testAttention } from './attentionSuite.ts';
import { expectWithin, f64, pattern, U } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

testAttention(GENERIC_CASES);

test('more workgroups than one grid dimension holds', async () => {
  const [N, H, K, D, rows] = [1027, 64, 1, 2, 19];
  const q = pattern(N * H * D);
  const [k, v] = [pattern(rows * D, 31), pattern(rows * D, 17)];
  const ranges = new Uint32Array(N * 4);
  for (let n = 0; n < N; n++) ranges.set([n % 7, (n % 7) + (n % 3), 9 + (n % 5), 10 + (n % 5)], 4 * n);
  const got = await runAttention({ N, H, K, D }, { q, k, v, ranges }, true);
  for (const n of [0, 1, 63, 511, 1023, 1024, 1025, 1026]) {
    const row = { q: f64(q.subarray(n * H * D, (n + 1) * H * D)), ranges: ranges.subarray(4 * n, 4 * n + 4) };
    const want = reference.attention(row.q, f64(k), f64(v), row.ranges, { H, K, D });
    expectWithin(got.out.slice(n * H * D, (n + 1) * H * D), want.out, () => 100 * U);
    expectWithin(got.lse.slice(n * H, (n + 1) * H), want.lse, () => 100 * U);
  }
  expect(got.out.findIndex(Number.isNaN)).toBe(-1);
});

test('a head dim that the kernels cannot hold is refused', () =>
  withGpu((gpu) => {
    const v = poisoned(gpu, 'v', 4096);
    const views = { q: v, kv: v, ranges: v, out: v, lse: v };
    expect(() => attention(gpu, { ...views, N: 1, H: 1, K: 1, D: 130 })).toThrow('attention: head_dim is 130; at most');
  }));
