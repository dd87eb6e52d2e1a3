/** Tests of the attention forward kernels, generic or generated for one head dim. */
import { test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { attention, type AttentionForm } from '../../src/gpu/ops/attention.ts';
import * as reference from '../../src/extensions/verify/reference/ops.ts';
import { rng } from '../random.ts';
import {
  type AttentionCase,
  attentionInputs,
  describeCase,
  foldCase,
  joinKv,
  scoreBound,
  weightError,
} from './attentionCases.ts';
import { abs64, expectSame, expectWithin, f64, readRoomy, roomy, U } from './check.ts';
import { foldedByTwo } from './fold.ts';
import { withGpu } from './gpu.ts';

interface Inputs {
  q: Float32Array;
  k: Float32Array;
  v: Float32Array;
  ranges: Uint32Array;
}
type Sizes = Pick<AttentionCase, 'N' | 'H' | 'K' | 'D'>;

async function runAttention({ N, H, K, D }: Sizes, { q, k, v, ranges }: Inputs, form: AttentionForm, fold = false) {
  const results: Float32Array[] = [];
  await withGpu(async (gpu) => {
    const out = { out: roomy(gpu, 'out', N * H * D), lse: roomy(gpu, 'lse', N * H) };
    const kv = gpu.buffer('kv', joinKv(k, v, K * D));
    const views = { q: gpu.buffer('q', q), kv, ranges: gpu.buffer('ranges', ranges), ...out };
    const record = (gpu: Gpu) => attention(gpu, { ...views, N, H, K, D, form });
    if (fold) foldedByTwo(() => record(gpu));
    else record(gpu);
    results.push(await readRoomy(gpu, out.out, N * H * D), await readRoomy(gpu, out.lse, N * H));
  });
  return { out: results[0], lse: results[1] };
}

/** Compares one form of the kernel to float64, and bit for bit to the tiled form. */
async function check(sizes: Sizes, inputs: Inputs, form: AttentionForm): Promise<void> {
  const { q, k, v, ranges } = inputs;
  const got = await runAttention(sizes, inputs, form);
  if (form !== 'tiled') {
    const tiled = await runAttention(sizes, inputs, 'tiled');
    expectSame(got.out, tiled.out);
    expectSame(got.lse, tiled.lse);
  }
  const want = reference.attention(f64(q), f64(k), f64(v), ranges, sizes);
  const size = reference.attention(f64(q), f64(k), abs64(v), ranges, sizes).out;
  const keys = keysOf(ranges);
  const S = scoreBound(q, k, sizes.D);
  const error = weightError(keys, sizes.D, S);
  // The weighted sum and its divisor each have the relative error `error`, and that of the additions.
  expectWithin(got.out, want.out, (i) => 2 * (error + keys * U) * size[i]);
  expectWithin(got.lse, want.lse, () => error + keys * U + 2 ** -20 + 2 * U * S); // log: 2^-21 near 1
}

function keysOf(ranges: Uint32Array): number {
  let most = 0;
  for (let at = 0; at < ranges.length; at += 4)
    most = Math.max(most, ranges[at + 1] - ranges[at] + ranges[at + 3] - ranges[at + 2]);
  return most;
}

/** Decoding: the rows of a batch read keys from anywhere in the cache. */
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

export function testAttention(cases: AttentionCase[], form: AttentionForm): void {
  const { D } = cases[0];
  test.for(cases.map((c) => [describeCase(c), c] as const))('packed groups, %s', async ([, c]) => {
    await check(c, attentionInputs(c), form);
  });

  test('a grid folded over both dimensions gives the same bits', async () => {
    const inputs = attentionInputs(foldCase(D));
    const [folded, straight] = [
      await runAttention(foldCase(D), inputs, form, true),
      await runAttention(foldCase(D), inputs, form),
    ];
    expectSame(folded.out, straight.out);
    expectSame(folded.lse, straight.lse);
  });

  test('decode rows: prefix elsewhere in the cache, empty prefix, empty own range', async () => {
    await check({ N: 6, H: 6, K: 3, D }, decodeInputs(6, 3, D), form);
  });

  test('a row gives the same bits alone, in a batch, and wherever its keys lie', async () => {
    const [H, K] = [4, 2];
    const all = decodeInputs(H, K, D);
    const together = await runAttention({ N: 6, H, K, D }, all, form);
    for (let n = 0; n < 6; n++) {
      // Copies the row's keys to the start of a separate cache, prefix and own range next to each other.
      const rows = [0, 2].flatMap((part) => {
        const [from, to] = all.ranges.subarray(4 * n + part, 4 * n + part + 2);
        return Array.from({ length: to - from }, (_, i) => from + i);
      });
      const pick = (x: Float32Array) =>
        Float32Array.from(rows.flatMap((row) => [...x.subarray(row * K * D, (row + 1) * K * D)]));
      const prefix = all.lengths[n][0];
      const alone = await runAttention(
        { N: 1, H, K, D },
        {
          q: all.q.slice(n * H * D, (n + 1) * H * D),
          k: pick(all.k),
          v: pick(all.v),
          ranges: Uint32Array.of(0, prefix, prefix, rows.length),
        },
        form,
      );
      expectSame(alone.out, together.out.subarray(n * H * D, (n + 1) * H * D));
      expectSame(alone.lse, together.lse.subarray(n * H, (n + 1) * H));
    }
  });
}
