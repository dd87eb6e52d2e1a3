import { expect, test } from 'vitest';
import { headLogprob } from '../../src/gpu/ops/head.ts';
import { expectWithin, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, roomy, U } from './check.ts';
import { withGpu } from './gpu.ts';
import { describeHead, HEAD_CASES, type HeadCase, headInputs, headReference, largest } from './headCases.ts';

/** Checks log-probs of the entries whose row is in [firstRow, firstRow + rows). Other entries must stay unchanged. */
async function check(c: HeadCase, firstRow: number, rows: number): Promise<void> {
  const { V, temperature } = c;
  const { logits, entryRow, targets } = headInputs(c);
  const E = targets.length;
  const { logProbs, entropy, lse, rowEntropy } = headReference(logits, V, { entryRow, targets }, temperature);
  const stats = Float32Array.from({ length: 2 * rows }, (_, i) => (i % 2 ? rowEntropy : lse)[firstRow + (i >> 1)]);
  const inside = (e: number) => entryRow[e] >= firstRow && entryRow[e] < firstRow + rows;
  await withGpu(async (gpu) => {
    const out = { logp: roomy(gpu, 'logp', E), entropy: roomy(gpu, 'entropy', E) };
    headLogprob(gpu, {
      logits: gpu.buffer('logits', logits.slice(firstRow * V, (firstRow + rows) * V)),
      stats: gpu.buffer('stats', stats),
      entryRow: gpu.buffer('entryRow', entryRow),
      targets: gpu.buffer('targets', targets),
      ...out,
      E,
      R: rows,
      V,
      firstRow,
      temperature,
    });
    const [logp, ent] = [await readRoomy(gpu, out.logp, E), await readRoomy(gpu, out.entropy, E)];
    const seen = [...entryRow.keys()].filter(inside);
    for (const e of [...entryRow.keys()].filter((e) => !inside(e))) expect([logp[e], ent[e]]).toEqual([NaN, NaN]);
    const pick = (x: Float32Array) => Float32Array.from(seen, (e) => x[e]);
    // Rounding occurs in 1/T, the product, the log-sum-exp and their difference.
    const size = 2 * (largest(logits) / temperature) + Math.log(V);
    expectWithin(
      pick(logp),
      seen.map((e) => logProbs[e]),
      () => 4 * U * size,
    );
    expectWithin(
      pick(ent),
      seen.map((e) => entropy[e]),
      (i) => U * Math.abs(entropy[seen[i]]),
    );
  });
}

test.each(HEAD_CASES.map((c) => [describeHead(c), c] as const))('matches float64, %s', (_, c) => check(c, 0, c.R));

test.each([
  [0, 64],
  [64, 64],
  [128, 9],
])('writes only the entries of its chunk, rows %i + %i', (firstRow, rows) =>
  check({ R: 137, V: 13, temperature: 0.7, scale: 2 }, firstRow, rows),
);

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const [E, R, V] = [FOLD_THREADS, 3, 5];
    const [logits, stats] = [pattern(R * V), pattern(R * 2, 31)];
    const entryRow = Uint32Array.from({ length: E }, (_, e) => e % R);
    const targets = Uint32Array.from({ length: E }, (_, e) => (e * 3) % V);
    const out = { logp: roomy(gpu, 'logp', E), entropy: roomy(gpu, 'entropy', E) };
    headLogprob(oneThreadGroups(gpu), {
      logits: gpu.buffer('logits', logits),
      stats: gpu.buffer('stats', stats),
      entryRow: gpu.buffer('entryRow', entryRow),
      targets: gpu.buffer('targets', targets),
      ...out,
      E,
      R,
      V,
      firstRow: 0,
      temperature: 1,
    });
    const want = Float64Array.from(
      { length: E },
      (_, e) => logits[entryRow[e] * V + targets[e]] - stats[entryRow[e] * 2],
    );
    expectWithin(await readRoomy(gpu, out.logp, E), want, () => 2 * U);
    const entropy = Float64Array.from({ length: E }, (_, e) => stats[entryRow[e] * 2 + 1]);
    expectWithin(await readRoomy(gpu, out.entropy, E), entropy, () => 0);
  }));
