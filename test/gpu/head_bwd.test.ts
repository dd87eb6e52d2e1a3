import { expect, test } from 'vitest';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { headBwd, headBwdKernel } from '../../src/gpu/ops/head.ts';
import { rng } from '../random.ts';
import { expectWithin, readRoomy, U, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';
import {
  describeHead,
  dLogitsReference,
  HEAD_CASES,
  type HeadCase,
  headInputs,
  headReference,
  largest,
} from './headCases.ts';

async function check(c: HeadCase, firstRow: number, rows: number): Promise<void> {
  const { V, temperature } = c;
  const { logits, entryRow, targets, rowStart, rowEntries } = headInputs(c);
  const E = targets.length;
  const r = rng(E);
  const d = { dLogProbs: r.normals(E), dEntropy: r.normals(E) };
  const entries = { entryRow, targets };
  const forward = headReference(logits, V, entries, temperature);
  const stats = Float32Array.from({ length: 2 * c.R }, (_, i) => (i % 2 ? forward.rowEntropy : forward.lse)[i >> 1]);
  // The reference gets the same rounded statistics as the kernel.
  const rounded = { lse: stats.filter((_, i) => i % 2 === 0), rowEntropy: stats.filter((_, i) => i % 2 === 1) };
  const given = { logits, lse: Float64Array.from(rounded.lse), rowEntropy: Float64Array.from(rounded.rowEntropy) };
  const want = dLogitsReference(d, given, V, entries, temperature);
  // Rounding: p has the errors of z, lse and exp. It is multiplied by sums over the entries of the row (at most 3).
  const Z = largest(logits) / temperature + Math.log(V);
  const rtol = U * (6 * Z + 2 * (3 + 4 * Z) + 16);
  const size = (i: number) => {
    const row = Math.floor(i / V);
    const logp = logits[i] / temperature - given.lse[row];
    let sum = 0;
    for (let at = rowStart[row]; at < rowStart[row + 1]; at++) {
      const e = rowEntries[at];
      const p = Math.exp(logp) * (Math.abs(d.dLogProbs[e]) + Math.abs(d.dEntropy[e]) * (2 * Z + given.rowEntropy[row]));
      sum += p + (targets[e] === i % V ? Math.abs(d.dLogProbs[e]) : 0);
    }
    return sum / temperature;
  };
  await withGpu(async (gpu) => {
    const [from, to] = [firstRow * V, (firstRow + rows) * V];
    const view = withRoom(gpu, 'logits', logits.slice(from, to));
    headBwd(gpu, {
      logits: view,
      stats: gpu.buffer('stats', stats.slice(2 * firstRow, 2 * (firstRow + rows))),
      rowStart: gpu.buffer('rowStart', rowStart),
      rowEntries: gpu.buffer('rowEntries', rowEntries),
      targets: gpu.buffer('targets', targets),
      dLogp: gpu.buffer('dLogp', d.dLogProbs),
      dEntropy: gpu.buffer('dEntropy', d.dEntropy),
      R: rows,
      V,
      firstRow,
      temperature,
    });
    expectWithin(await readRoomy(gpu, view, to - from), want.slice(from, to), (i) => 1e-36 + rtol * size(from + i));
  });
}

test.each(HEAD_CASES.map((c) => [describeHead(c), c] as const))('logits become their gradient, %s', (_, c) =>
  check(c, 0, c.R),
);

test.each([
  [0, 64],
  [64, 64],
  [128, 9],
])('a chunk of rows, %i + %i', (firstRow, rows) =>
  check({ R: 137, V: 13, temperature: 0.7, scale: 2 }, firstRow, rows),
);

test('workgroups past the last row write nothing', () =>
  withGpu(async (gpu) => {
    const [R, V] = [3, 4];
    const v = (n: number) => gpu.buffer('in', rng(1).normals(n));
    const u = (...x: number[]) => gpu.buffer('in', Uint32Array.from(x));
    const logits = withRoom(gpu, 'logits', rng(2).normals(R * V));
    const views = {
      logits,
      stats: v(20),
      rowStart: u(0, 1, 2, 3, 3, 3, 3),
      rowEntries: u(0, 1, 2),
      targets: u(1, 2, 3),
    };
    const params = { R, V, firstRow: 0, invT: 1 };
    gpu.dispatch(headBwdKernel, { ...views, dLogp: v(3), dEntropy: v(3) }, params, 5, rowGrid(gpu));
    expect((await readRoomy(gpu, logits, R * V)).findIndex(Number.isNaN)).toBe(-1);
  }));
