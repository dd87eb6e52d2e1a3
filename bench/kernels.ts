/** Benchmarks the two operations that should take nearly all the time: matrix products and attention. */

import type { Gpu } from '../src/gpu/device.ts';
import { attention, attentionBwd } from '../src/gpu/ops/attention.ts';
import { matmulNn, matmulTn } from '../src/gpu/ops/matmul.ts';
import type { PackedBatch } from '../src/model/engine.ts';
import { HEADLINE, packOne, plainBatch, sampleOf, tokenIds } from './models.ts';
import type { AttentionResult, MatmulResult } from './report.ts';
import { type Effort, secondsOf } from '../src/extensions/limits/index.ts';

type Shape = Pick<MatmulResult, 'op' | 'm' | 'n' | 'k'>;

/** Returns shapes of matrix products: those of the headline model (decode steps, training step), and square ones. */
export function matmulShapes(gpu: Gpu, quick: boolean): Shape[] {
  const { hiddenSize: C, intermediateSize: F, vocabSize: V } = HEADLINE;
  const rows = quick ? 256 : 1024;
  const nn = (m: number, n: number, k: number): Shape => ({ op: 'nn', m, n, k });
  const tn = (m: number, n: number): Shape => ({ op: 'tn', m, n, k: rows });
  const squares = gpu.adapter.isSoftware ? [256, 512] : [1024, 2048, 4096];
  return [
    ...[1, 8, 64, 256].map((m) => nn(m, 3 * C, C)),
    nn(64, 2 * F, C),
    nn(64, V, C),
    nn(rows, 3 * C, C),
    nn(rows, C, C),
    nn(rows, 2 * F, C),
    nn(rows, C, F),
    nn(rows, V, C),
    nn(rows, C, 3 * C),
    nn(rows, C, 2 * F),
    nn(rows, F, C),
    nn(rows, C, V),
    tn(C, 3 * C),
    tn(C, C),
    tn(C, 2 * F),
    tn(F, C),
    tn(V, C),
    ...(quick ? [] : squares.map((s) => nn(s, s, s))),
  ];
}

export async function benchMatmul(gpu: Gpu, shape: Shape, effort: Effort): Promise<MatmulResult> {
  const { op, m: M, n: N, k: K } = shape;
  const x = gpu.buffer('bench.x', noise(M * K));
  const b = gpu.buffer('bench.b', noise(K * N));
  const y = gpu.buffer('bench.y', M * N * 4);
  const record = () => (op === 'nn' ? matmulNn(gpu, { x, b, y, M, N, K }) : matmulTn(gpu, { a: x, b, y, M, N, K }));
  const seconds = await secondsOf(gpu, record, effort);
  for (const view of [x, b, y]) gpu.free(view);
  return { ...shape, gflops: (2 * M * N * K) / seconds / 1e9 };
}

/** Returns batches for attention, by name: plain sequences, and a group of samples that share a prompt. */
export function attentionBatches(quick: boolean): [string, PackedBatch][] {
  const { vocabSize: V } = HEADLINE;
  const group = (prompt: number, n: number, length: number) =>
    packOne([
      {
        prompt: tokenIds(prompt, V),
        samples: Array.from({ length: n }, (_, s) => sampleOf(tokenIds(length, V, s + 2))),
      },
    ]);
  const small: [string, PackedBatch][] = [
    ['16 x 64', plainBatch(16, 64, V)],
    ['8 sharing 64, 32 each', group(64, 8, 32)],
  ];
  if (quick) return small;
  return [...small, ['4 x 256', plainBatch(4, 256, V)], ['8 sharing 256, 64 each', group(256, 8, 64)]];
}

export async function benchAttention(
  gpu: Gpu,
  [shape, batch]: [string, PackedBatch],
  effort: Effort,
): Promise<AttentionResult> {
  const { numAttentionHeads: H, numKeyValueHeads: K, headDim: D } = HEADLINE;
  const N = batch.tokens.length;
  const f32 = (n: number) => gpu.buffer('bench.attention', noise(n));
  const wide = { q: f32(N * H * D), out: f32(N * H * D), dout: f32(N * H * D), dq: f32(N * H * D) };
  const narrow = { lse: f32(N * H), delta: f32(N * H), kv: f32(N * 2 * K * D), dkv: f32(N * 2 * K * D) };
  const tables = {
    ranges: gpu.buffer('bench.ranges', batch.ranges),
    queryEnd: gpu.buffer('bench.end', batch.queryEnd),
  };
  const args = { ...wide, ...narrow, ...tables, N, H, K, D };
  const forward = await secondsOf(gpu, () => attention(gpu, args), effort);
  const backward = await secondsOf(gpu, () => attentionBwd(gpu, args), effort);
  for (const view of Object.values({ ...wide, ...narrow, ...tables })) gpu.free(view);
  return { shape, forwardMs: forward * 1000, backwardMs: backward * 1000 };
}

/** Returns values in [-1, 1) that repeat every few thousand elements. Zeros would make products too fast on some adapters. */
export function noise(n: number): Float32Array {
  return Float32Array.from({ length: n }, (_, i) => ((i * 7919) % 4093) / 2046.5 - 1);
}
