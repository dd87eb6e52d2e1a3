/**
 * Tests that row-wise kernels give the same results, up to rounding, for any distribution of rows over threads, including the distribution
 * on hardware GPUs.
 */
import { expect, test } from 'vitest';
import type { Gpu, View } from '../../src/gpu/device.ts';
import { rowGrid } from '../../src/gpu/ops/grid.ts';
import { headBwd, headStats } from '../../src/gpu/ops/head.ts';
import { qkNorm, qkNormBwd } from '../../src/gpu/ops/qk_norm.ts';
import { rmsnorm, rmsnormBwd } from '../../src/gpu/ops/rmsnorm.ts';
import { expectClose } from '../close.ts';
import { rng } from '../random.ts';
import { FOLD_THREADS, readRoomy, roomy, withRoom } from './check.ts';
import { foldedByTwo } from './fold.ts';
import { isFull } from './full.ts';
import { withGpu } from './gpu.ts';
import { stub } from '../stub.ts';

interface Grid {
  WG: number;
  LANES: number;
}

/** Workgroup sizes and threads per row: several rows per workgroup, one row per workgroup, and rows past the end next to valid ones. */
const GRIDS: Grid[] = [
  { WG: 64, LANES: 64 },
  { WG: 16, LANES: 4 },
  { WG: 8, LANES: 1 },
];

/** Returns a Gpu that runs row-wise kernels with another grid. */
function onGrid(gpu: Gpu, grid: Grid): { gpu: Gpu; replaced: () => number } {
  const own = rowGrid(gpu);
  let replaced = 0;
  const dispatch: Gpu['dispatch'] = (kernel, buffers, params, groups, overrides) => {
    if (overrides?.['LANES'] === undefined) return gpu.dispatch(kernel, buffers, params, groups, overrides);
    replaced++;
    const rows = groups * (own.WG / own.LANES); // a few too many, as a grid can have
    gpu.dispatch(kernel, buffers, params, Math.ceil(rows / (grid.WG / grid.LANES)), { ...overrides, ...grid });
  };
  return { gpu: stub<Gpu>({ adapter: gpu.adapter, dispatch }), replaced: () => replaced };
}

type Case = (gpu: Gpu, make: Gpu, N: number) => { view: View; n: number }[];

/** Each case records an op on `gpu` with buffers from `make`, and returns the op's outputs by name. */
const CASES: Record<string, Case> = {
  rmsnorm(gpu, make, N) {
    const [C, r] = [37, rng(1)];
    const out = { y: roomy(make, 'y', N * C), rstd: roomy(make, 'rstd', N) };
    const [x, weight] = [make.buffer('x', r.normals(N * C)), make.buffer('weight', r.normals(C))];
    rmsnorm(gpu, { x, weight, ...out, N, C, eps: 1e-6 });
    return [
      { view: out.y, n: N * C },
      { view: out.rstd, n: N },
    ];
  },
  rmsnorm_bwd(gpu, make, N) {
    const [C, r] = [37, rng(2)];
    const f = (n: number) => make.buffer('in', r.normals(n));
    const dx = roomy(make, 'dx', N * C);
    const inputs = {
      x: f(N * C),
      weight: f(C),
      rstd: f(N),
      dy: f(N * C),
      dres: f(N * C),
      dweight: f(C),
      partial: f(Math.ceil(N / 64) * C),
    };
    rmsnormBwd(gpu, { ...inputs, dx, N, C });
    return [{ view: dx, n: N * C }];
  },
  head_stats(gpu, make, N) {
    const [V, r] = [71, rng(3)];
    const stats = roomy(make, 'stats', N * 2);
    headStats(gpu, { logits: make.buffer('logits', r.normals(N * V, 3)), stats, R: N, V, temperature: 0.7 });
    return [{ view: stats, n: N * 2 }];
  },
  head_bwd(gpu, make, N) {
    const [V, r] = [71, rng(4)];
    const logits = withRoom(make, 'logits', r.normals(N * V));
    const u32 = (f: (i: number) => number, n: number) =>
      make.buffer(
        'u32',
        Uint32Array.from({ length: n }, (_, i) => f(i)),
      );
    const tables = {
      rowStart: u32((i) => i, N + 1),
      rowEntries: u32((i) => i, N),
      targets: u32((i) => (i * 5) % V, N),
    };
    const f = (n: number) => make.buffer('in', r.normals(n));
    const stats = make.buffer(
      'stats',
      Float32Array.from({ length: 2 * N }, (_, i) => (i % 2 ? 3.9 : 4.7)),
    );
    headBwd(gpu, { logits, stats, ...tables, dLogp: f(N), dEntropy: f(N), R: N, V, firstRow: 0, temperature: 0.7 });
    return [{ view: logits, n: N * V }];
  },
  qk_norm(gpu, make, N) {
    const [H, K, D, r] = [2, 1, 10, rng(5)];
    const out = { y: roomy(make, 'y', N * 4 * D), rstd: roomy(make, 'rstd', N * 3) };
    const [qkv, weight] = [make.buffer('qkv', r.normals(N * 4 * D)), make.buffer('weight', r.normals(2 * D))];
    qkNorm(gpu, { qkv, weight, ...out, eps: 1e-6, N, H, K, D });
    return [
      { view: out.y, n: N * 4 * D },
      { view: out.rstd, n: N * 3 },
    ];
  },
  qk_norm_bwd(gpu, make, N) {
    const [H, K, D, r] = [2, 1, 10, rng(6)];
    const f = (n: number) => make.buffer('in', r.normals(n));
    const dqkv = withRoom(make, 'dqkv', r.normals(N * 4 * D));
    const inputs = {
      qkv: f(N * 4 * D),
      weight: f(2 * D),
      rstd: f(N * 3),
      dweight: f(2 * D),
      partial: f(Math.ceil(N / 64) * 2 * D),
    };
    qkNormBwd(gpu, { ...inputs, dqkv, N, H, K, D });
    return [{ view: dqkv, n: N * 4 * D }];
  },
};

const ONE_THREAD: Grid[] = [{ WG: 1, LANES: 1 }];
const inPlace = (record: () => ReturnType<Case>) => record();
/** Records an op with its grid folded into rows of two workgroups. */
const byTwo = (record: () => ReturnType<Case>) => {
  let outputs: ReturnType<Case> = [];
  foldedByTwo(() => (outputs = record()));
  return outputs;
};

const names = Object.keys(CASES);
test.each([
  ...names.map((name) => ({ name, N: 19, grids: GRIDS, fold: inPlace, why: 'no multiple of any rows a workgroup' })),
  ...names.map((name) => ({ name, N: 19, grids: ONE_THREAD, fold: byTwo, why: 'folded by two' })),
  ...(isFull ? names : []).map((name) => {
    return { name, N: FOLD_THREADS, grids: ONE_THREAD, fold: inPlace, why: 'folded where one dimension ends' };
  }),
])('$name, $N rows: $why', ({ name, N, grids, fold }) =>
  withGpu(async (gpu) => {
    const read = async (outputs: ReturnType<Case>) => {
      const values: Float32Array[] = [];
      for (const { view, n } of outputs) values.push(await readRoomy(gpu, view, n));
      return values;
    };
    const want = await read(CASES[name](gpu, gpu, N));
    for (const grid of grids) {
      const other = onGrid(gpu, grid);
      const got = await read(fold(() => CASES[name](other.gpu, gpu, N)));
      expect(other.replaced()).toBe(1);
      // Rounding: sums of at most 71 terms in two orders, and the few operations on these sums.
      got.forEach((values, i) => expectClose(values, want[i], { rtol: 2e-5, atol: 2e-5 }));
    }
  }),
);
