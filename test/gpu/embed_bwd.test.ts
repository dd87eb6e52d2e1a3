import { test } from 'vitest';
import type { Gpu } from '../../src/gpu/device.ts';
import { embedBwd } from '../../src/gpu/ops/embed.ts';
import { embeddingBwd } from '../../src/extensions/verify/reference/ops.ts';
import { sortByToken } from '../../src/model/workspace.ts';
import { rng } from '../random.ts';
import { abs64, expectWithin, f64, FOLD_THREADS, oneThreadGroups, pattern, readRoomy, U, withRoom } from './check.ts';
import { withGpu } from './gpu.ts';

async function check(
  gpu: Gpu,
  tokens: Uint32Array,
  dx: Float32Array,
  old: Float32Array,
  run = gpu,
  firstRows?: number,
): Promise<void> {
  const C = dx.length / tokens.length;
  const V = old.length / C;
  const { ids, start, rows } = sortByToken(tokens);
  const views = {
    ids: gpu.buffer('ids', ids),
    start: gpu.buffer('start', start),
    rows: gpu.buffer('rows', rows),
    dx: gpu.buffer('dx', dx),
  };
  const split = firstRows ?? V;
  const tables = [old.slice(0, split * C), old.slice(split * C)].map((part) => withRoom(gpu, 'dtable', part));
  const dtable = tables.map((view, i) => ({ view, first: i * split, rows: i === 0 ? split : V - split }));
  embedBwd(run, { ...views, dtable: firstRows === undefined ? dtable.slice(0, 1) : dtable, U: ids.length, C });
  const want = embeddingBwd(f64(dx), tokens, V).map((g, i) => g + old[i]);
  const size = embeddingBwd(abs64(dx), tokens, V);
  // A sum of n terms has n rounding errors, and adding the sum to the old value causes one more. Rows without a token must not change.
  const most = start.reduce((max, s, u) => (u > 0 ? Math.max(max, s - start[u - 1]) : 0), 0);
  const got = new Float32Array(V * C);
  for (const { view, first, rows: count } of dtable) got.set(await readRoomy(gpu, view, count * C), first * C);
  expectWithin(got, want, (i) => (size[i] === 0 ? 0 : (most + 1) * U * (size[i] + Math.abs(old[i]))));
}

test.each([
  [1, 1, 3],
  [5, 13, 2],
  [64, 7, 9],
  [130, 65, 11],
  [200, 3, 1],
])('adds the rows of each token to what is there, N=%i C=%i V=%i', (N, C, V) =>
  withGpu(async (gpu) => {
    const r = rng(N * 31 + C);
    const tokens = Uint32Array.from({ length: N }, () => Math.floor(r.uniform() * V));
    await check(gpu, tokens, r.normals(N * C), r.normals(V * C));
  }),
);

test('a table in two buffers', () =>
  withGpu(async (gpu) => {
    const [N, C, V, r] = [64, 7, 9, rng(3)];
    const tokens = Uint32Array.from({ length: N }, () => Math.floor(r.uniform() * V));
    await check(gpu, tokens, r.normals(N * C), r.normals(V * C), gpu, 5);
  }));

test('a grid folded over both dimensions', () =>
  withGpu(async (gpu) => {
    const [N, C] = [Math.ceil(FOLD_THREADS / 60), 61];
    const tokens = Uint32Array.from({ length: N }, (_, n) => N - 1 - n);
    await check(gpu, tokens, pattern(N * C), pattern(N * C, 31), oneThreadGroups(gpu));
  }));
