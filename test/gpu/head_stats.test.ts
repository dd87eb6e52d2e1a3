import { expect, test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { headStats, headStatsKernel } from '../../src/gpu/ops/head.ts';
import { rng } from '../random.ts';
import { expectSame, expectWithin, readRoomy, roomy } from './check.ts';
import { poisoned, withGpu } from './gpu.ts';
import {
  describeHead,
  entropySize,
  HEAD_CASES,
  type HeadCase,
  headInputs,
  headReference,
  largest,
  statsError,
} from './headCases.ts';
import { logProbsOf } from './sampleReference.ts';
import { stub } from '../stub.ts';

async function check({ R, V, temperature }: HeadCase, logits: Float32Array): Promise<void> {
  await withGpu(async (gpu) => {
    const stats = roomy(gpu, 'stats', R * 2);
    headStats(gpu, { logits: gpu.buffer('logits', logits), stats, R, V, temperature });
    const none = { entryRow: new Uint32Array(), targets: new Uint32Array() };
    const { lse, rowEntropy } = headReference(logits, V, none, temperature);
    const want = Float64Array.from({ length: 2 * R }, (_, i) => (i % 2 === 0 ? lse : rowEntropy)[i >> 1]);
    const Z = largest(logits) / temperature;
    const error = statsError(V, rowGrid(gpu).LANES, Z);
    expectWithin(await readRoomy(gpu, stats, R * 2), want, (i) => (i % 2 === 0 ? 1 : 2 * entropySize(V, Z)) * error);
  });
}

test.each(HEAD_CASES.map((c) => [describeHead(c), c] as const))('log-sum-exp and entropy match float64, %s', (_, c) =>
  check(c, headInputs(c).logits),
);

test('logits whose exp overflows f32', () =>
  check(
    { R: 2, V: 5, temperature: 1, scale: 1 },
    Float32Array.of(900, 899, -900, 0, 898, -500, -501, -500, -502, -900),
  ));

// The vocabulary sizes of SmolLM2 and Qwen, with one thread per row as on a software adapter. With a single running sum over so many terms,
// the errors were 5e-5 and 2e-4.
test.each([49_152, 151_936])('a vocabulary of %i words in one lane is as exact as a small one', (V) =>
  withGpu(async (gpu) => {
    const like = stub<Gpu>({ adapter: { ...gpu.adapter, isSoftware: true }, dispatch: gpu.dispatch.bind(gpu) });
    const R = 4;
    const logits = rng(V).normals(R * V, 3);
    const stats = roomy(gpu, 'stats', R * 2);
    headStats(like, { logits: gpu.buffer('logits', logits), stats, R, V, temperature: 1 });
    const rows = Array.from({ length: R }, (_, r) => logProbsOf(logits.subarray(r * V, (r + 1) * V), 1));
    const want = rows.flatMap((logProbs, r) => [
      logits[r * V] - logProbs[0],
      -logProbs.reduce((sum, logp) => sum + Math.exp(logp) * logp, 0),
    ]);
    expectWithin(await readRoomy(gpu, stats, R * 2), want, () => 1e-5);
  }),
);

test('a row gives the same bits alone and among others', () =>
  withGpu(async (gpu) => {
    const [R, V] = [5, 61];
    const logits = rng(5).normals(R * V, 3);
    const run = async (x: Float32Array) => {
      const stats = poisoned(gpu, 'stats', (x.length / V) * 2);
      headStats(gpu, { logits: gpu.buffer('logits', x), stats, R: x.length / V, V, temperature: 0.8 });
      return gpu.readF32(stats);
    };
    const together = await run(logits);
    for (let r = 0; r < R; r++)
      expectSame(await run(logits.slice(r * V, (r + 1) * V)), together.subarray(2 * r, 2 * r + 2));
  }));

test('workgroups past the last row write nothing', () =>
  withGpu(async (gpu) => {
    const stats = poisoned(gpu, 'stats', 10);
    const logits = gpu.buffer('logits', rng(1).normals(20));
    gpu.dispatch(headStatsKernel, { logits, stats }, { R: 3, V: 4, invT: 1 }, 5, rowGrid(gpu));
    expect([...(await gpu.readF32(stats))].map(Number.isNaN).indexOf(true)).toBe(6);
  }));
