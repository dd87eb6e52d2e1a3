import codePlain from '../../../kernels/matmul_plain.wgsl?raw';
import codePlainSmall from '../../../kernels/matmul_plain_small.wgsl?raw';
import codeSubgroup4 from '../../../kernels/matmul_subgroup4.wgsl?raw';
import codeSubgroup4Small from '../../../kernels/matmul_subgroup4_small.wgsl?raw';
import codeSubgroup8 from '../../../kernels/matmul_subgroup8.wgsl?raw';
import codeSubgroup8Small from '../../../kernels/matmul_subgroup8_small.wgsl?raw';
import type { Gpu, View } from '../device.ts';
import { defineKernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';

const WORKGROUP = 64;
const params = { M: 'u32', N: 'u32', K: 'u32', rowA: 'u32', stepA: 'u32', stepB: 'u32', colB: 'u32' } as const;

/** A tile shape: rows x cols outputs a thread, columns one `lane` apart. `subgroup`: lanes share their loads. */
const variant = (name: string, code: string, rows: number, cols: number, subgroup: boolean) => ({
  kernel: defineKernel({ name: `matmul_${name}`, code, read: ['a', 'b', 'add'], write: ['y'], params }),
  rows,
  cols,
  subgroup,
});

/** Every variant gives the same bits on one adapter; they differ in speed alone. */
export const MATMUL_VARIANTS = {
  subgroup4: variant('subgroup4', codeSubgroup4, 16, 4, true),
  subgroup4_small: variant('subgroup4_small', codeSubgroup4Small, 4, 4, true),
  subgroup8: variant('subgroup8', codeSubgroup8, 16, 4, true),
  subgroup8_small: variant('subgroup8_small', codeSubgroup8Small, 8, 2, true),
  plain: variant('plain', codePlain, 8, 8, false),
  plain_small: variant('plain_small', codePlainSmall, 4, 4, false),
} as const;

export type MatmulVariant = keyof typeof MATMUL_VARIANTS;

/** Measured choice by subgroup size and rows: loads are what costs, and lanes of a subgroup can share them. */
export function chooseMatmul(gpu: Gpu, M: number): MatmulVariant {
  const family = gpu.adapter.subgroupSize >= 8 ? 'subgroup8' : gpu.adapter.subgroupSize >= 4 ? 'subgroup4' : 'plain';
  return M <= 32 ? `${family}_small` : family;
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
function groups(gpu: Gpu, { rows, cols, subgroup }: (typeof MATMUL_VARIANTS)[MatmulVariant], M: number, N: number) {
  const need = (lanes: number) =>
    Math.ceil((Math.ceil(M / rows) * Math.ceil(N / (cols * lanes))) / (WORKGROUP / lanes));
  if (!subgroup) return need(4);
  return Math.max(need(gpu.adapter.subgroupSize), need(Math.min(gpu.adapter.subgroupMaxSize, WORKGROUP)));
}
