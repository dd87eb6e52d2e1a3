import { expect, test } from 'vitest';
import { attention } from '../../src/gpu/ops/attention.ts';
import * as reference from '../../src/model/reference.ts';
import { rng } from '../random.ts';
import {
  ATTENTION_CASES,
  type AttentionCase,
  attentionInputs,
  describeCase,
  joinKv,
  scoreBound,
  weightError,
} from './attentionCases.ts';
import { abs64, expectSame, expectWithin, f64, oneThreadGroups, pattern, readRoomy, roomy, U } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';

interface Inputs {
  q: Float32Array;
  k: Float32Array;
  v: Float32Array;
  ranges: Uint32Array;
}
type Sizes = Pick<AttentionCase, 'N' | 'H' | 'K' | 'D'>;

async function run({ N, H, K, D }: Sizes, { q, k, v, ranges }: Inputs, fold = false) {
  const results: Float32Array[] = [];
  await withGpu(async (gpu) => {
    const out = { out: roomy(gpu, 'out', N * H * D), lse: roomy(gpu, 'lse', N * H) };
    const kv = gpu.buffer('kv', joinKv(k, v, K * D));
    const views = { q: gpu.buffer('q', q), kv, ranges: gpu.buffer('ranges', ranges), ...out };
    attention(fold ? oneThreadGroups(gpu) : gpu, { ...views, N, H, K, D });
    results.push(await readRoomy(gpu, out.out, N * H * D), await readRoomy(gpu, out.lse, N * H));
  });
  return { out: results[0], lse: results[1] };
}

async function check(sizes: Sizes, inputs: Inputs): Promise<void> {
  const { q, k, v, ranges } = inputs;
  const got = await run(sizes, inputs);
  const want = reference.attention(f64(q), f64(k), f64(v), ranges, sizes);
  const size = reference.attention(f64(q), f64(k), abs64(v), ranges, sizes).out;
  const keys = keysOf(ranges);
  const S = scoreBound(q, k, sizes.D);
  const error = weightError(keys, sizes.D, S);
  // Both the weighted sum and what it is divided by are off by `error` and by the additions.
  expectWithin(got.out, want.out, (i) => 2 * (error + keys * U) * size[i]);
  expectWithin(got.lse, want.lse, () => error + keys * U + 2 ** -20 + 2 * U * S); // log: 2^-21 near 1
}

function keysOf(ranges: Uint32Array): number {
  let most = 0;
  for (let at = 0; at < ranges.length; at += 4)
    most = Math.max(most, ranges[at + 1] - ranges[at] + ranges[at + 3] - ranges[at + 2]);
  return most;
}

test.each(ATTENTION_CASES.map((c) => [describeCase(c), c] as const))('packed groups, %s', (_, c) =>
  check(c, attentionInputs(c)),
);

/** Decoding: the rows of a batch read keys from all over the cache. */
function decodeInputs(H: number, K: number, D: number): Inputs & { lengths: number[][] } {
  const r = rng(H * 31 + D);
  const lengths = [
    [9, 5],
    [9, 1],
    [0, 3],
    [1, 70],
    [64, 65],
    [4, 0],
  ];
  const rows = 300;
  const starts = [0, 0, 40, 17, 100, 60];
  const ranges = lengths.flatMap(([prefix, own], i) => [starts[i], starts[i] + prefix, 200 + i, 200 + i + own]);
  const N = lengths.length;
  const [q, k, v] = [r.normals(N * H * D), r.normals(rows * K * D), r.normals(rows * K * D)];
  return { q, k, v, ranges: Uint32Array.from(ranges), lengths };
}

test('decode rows: prefix elsewhere in the cache, empty prefix, empty own range', () =>
  check({ N: 6, H: 6, K: 3, D: 10 }, decodeInputs(6, 3, 10)));

test('a row gives the same bits alone, in a batch, and wherever its keys lie', async () => {
  const [H, K, D] = [4, 2, 12];
  const all = decodeInputs(H, K, D);
  const together = await run({ N: 6, H, K, D }, all);
  for (let n = 0; n < 6; n++) {
    // Its keys copied to the front of a cache of their own, prefix and own range side by side.
    const rows = [0, 2].flatMap((part) => {
      const [from, to] = all.ranges.subarray(4 * n + part, 4 * n + part + 2);
      return Array.from({ length: to - from }, (_, i) => from + i);
    });
    const pick = (x: Float32Array) =>
      Float32Array.from(rows.flatMap((row) => [...x.subarray(row * K * D, (row + 1) * K * D)]));
    const prefix = all.lengths[n][0];
    const alone = await run(
      { N: 1, H, K, D },
      {
        q: all.q.slice(n * H * D, (n + 1) * H * D),
        k: pick(all.k),
        v: pick(all.v),
        ranges: Uint32Array.of(0, prefix, prefix, rows.length),
      },
    );
    expectSame(alone.out, together.out.subarray(n * H * D, (n + 1) * H * D));
    expectSame(alone.lse, together.lse.subarray(n * H, (n + 1) * H));
  }
});

test('more workgroups than one grid dimension holds', async () => {
  const [N, H, K, D, rows] = [1027, 64, 1, 2, 19];
  const q = pattern(N * H * D);
  const [k, v] = [pattern(rows * D, 31), pattern(rows * D, 17)];
  const ranges = new Uint32Array(N * 4);
  for (let n = 0; n < N; n++) ranges.set([n % 7, (n % 7) + (n % 3), 9 + (n % 5), 10 + (n % 5)], 4 * n);
  const got = await run({ N, H, K, D }, { q, k, v, ranges }, true);
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
