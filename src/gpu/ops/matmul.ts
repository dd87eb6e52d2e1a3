import codePlain from '../../../kernels/matmul_plain.wgsl?raw';
import codePlainSmall from '../../../kernels/matmul_plain_small.wgsl?raw';
import codeSubgroup4 from '../../../kernels/matmul_subgroup4.wgsl?raw';
import codeSubgroup4Mid from '../../../kernels/matmul_subgroup4_mid.wgsl?raw';
import codeSubgroup4Row from '../../../kernels/matmul_subgroup4_row.wgsl?raw';
import codeSubgroup4Small from '../../../kernels/matmul_subgroup4_small.wgsl?raw';
import codeSubgroup8 from '../../../kernels/matmul_subgroup8.wgsl?raw';
import codeSubgroup8Small from '../../../kernels/matmul_subgroup8_small.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';

const params = { M: 'u32', N: 'u32', K: 'u32', rowA: 'u32', stepA: 'u32', stepB: 'u32', colB: 'u32' } as const;

/** A tile shape: rows x cols outputs a thread, columns one `lane` apart. `subgroup`: lanes share their loads. */
const variant = (name: string, code: string, rows: number, cols: number, workgroup: number, subgroup = true) => ({
  kernel: defineKernel({ name: `matmul_${name}`, code, read: ['a', 'b', 'add'], write: ['y'], params }),
  rows,
  cols,
  workgroup,
  subgroup,
});

/** Every variant gives the same bits on one adapter; they differ in speed alone. */
export const MATMUL_VARIANTS = {
  subgroup4: variant('subgroup4', codeSubgroup4, 32, 8, 8),
  subgroup4_mid: variant('subgroup4_mid', codeSubgroup4Mid, 16, 4, 16),
  subgroup4_small: variant('subgroup4_small', codeSubgroup4Small, 8, 4, 16),
  subgroup4_row: variant('subgroup4_row', codeSubgroup4Row, 4, 4, 16),
  subgroup8: variant('subgroup8', codeSubgroup8, 16, 4, 64),
  subgroup8_small: variant('subgroup8_small', codeSubgroup8Small, 8, 2, 64),
  plain: variant('plain', codePlain, 8, 8, 64, false),
  plain_small: variant('plain_small', codePlainSmall, 4, 4, 64, false),
} as const;

export type MatmulVariant = keyof typeof MATMUL_VARIANTS;

/** Measured choice by subgroup size and rows: loads are what costs, and lanes of a subgroup can share them. */
export function chooseMatmul({ adapter }: Gpu, M: number): MatmulVariant {
  const { subgroupSize, subgroupMaxSize } = adapter;
  if (subgroupSize >= 8) return M <= 32 ? 'subgroup8_small' : 'subgroup8';
  const workgroup = MATMUL_VARIANTS.subgroup4.workgroup; // a subgroup must fit in
  if (subgroupSize < 4 || subgroupMaxSize > workgroup) return M <= 32 ? 'plain_small' : 'plain';
  if (M > 16) return 'subgroup4';
  return M > 8 ? 'subgroup4_mid' : M > 4 ? 'subgroup4_small' : 'subgroup4_row';
}

export interface MatmulArgs {
  /** [M, K] */
  x: View;
  /** [K, N], or [N, K] for matmulNt */
  b: View;
  /** [M, N] added to the product (the residual stream); must not overlap y */
  add?: View;
  /** [N] added to every row; not together with `add` */
  bias?: View | undefined;
  /** [M, N] out */
  y: View;
  M: number;
  N: number;
  K: number;
  /** y += instead of y =. */
  accumulate?: boolean;
  /** Pins a variant (tests, benchmarks). */
  variant?: MatmulVariant;
}

/** Records y = x b (+ add | + bias). */
export function matmulNn(gpu: Gpu, args: MatmulArgs): void {
  const { M, N, K } = args;
  record(gpu, args, { M, N, K, rowA: K, stepA: 1, stepB: N, colB: 1 }, args.accumulate ? 1 : 0);
}

/** Records y = x b^T (+ add | + bias). */
export function matmulNt(gpu: Gpu, args: MatmulArgs): void {
  const { M, N, K } = args;
  record(gpu, args, { M, N, K, rowA: K, stepA: 1, stepB: 1, colB: K }, args.accumulate ? 1 : 0);
}

export interface MatmulTnArgs {
  /** [K, M]; rows are tokens */
  a: View;
  /** [K, N] */
  b: View;
  /** [M, N] accumulates */
  y: View;
  M: number;
  N: number;
  K: number;
  variant?: MatmulVariant;
}

/** Records the weight gradient y += a^T b. */
export function matmulTn(gpu: Gpu, { a, ...args }: MatmulTnArgs): void {
  const { M, N, K } = args;
  record(gpu, { x: a, ...args }, { M, N, K, rowA: 1, stepA: M, stepB: N, colB: 1 }, 1);
}

function record(
  gpu: Gpu,
  { x, b, add, bias, y, variant }: MatmulArgs,
  sizes: Record<keyof typeof params, number>,
  ACCUMULATE: 0 | 1,
): void {
  const { M, N, K } = sizes;
  expectElements('matmul x [M, K]', x, M * K);
  expectElements('matmul b [K, N]', b, K * N);
  expectElements('matmul y [M, N]', y, M * N);
  const chosen = MATMUL_VARIANTS[variant ?? chooseMatmul(gpu, M)];
  const overrides = OVERRIDES[add ? 2 : bias ? 1 : 0][ACCUMULATE];
  gpu.dispatch(chosen.kernel, { a: x, b, add: add ?? bias ?? x, y }, sizes, groups(gpu, chosen, M, N), overrides);
}

const OVERRIDES = [0, 1, 2].map((ADD) => [0, 1].map((ACCUMULATE) => ({ ADD, ACCUMULATE })));

/** Workgroups for every tile. The subgroup size may vary within [min, max] of the adapter; both ends are covered. */
function groups({ adapter }: Gpu, tile: (typeof MATMUL_VARIANTS)[MatmulVariant], M: number, N: number) {
  const { rows, cols, workgroup, subgroup } = tile;
  const need = (lanes: number) =>
    Math.ceil((Math.ceil(M / rows) * Math.ceil(N / (cols * lanes))) / (workgroup / lanes));
  if (!subgroup) return need(4);
  return Math.max(need(adapter.subgroupSize), need(Math.min(adapter.subgroupMaxSize, workgroup)));
}
