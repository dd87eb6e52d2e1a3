import codePlain4x1 from '../../../kernels/matmul_plain_4x1.wgsl?raw';
import codePlain4x4 from '../../../kernels/matmul_plain_4x4.wgsl?raw';
import codePlain8x8 from '../../../kernels/matmul_plain_8x8.wgsl?raw';
import codeSubgroup416x4 from '../../../kernels/matmul_subgroup4_16x4.wgsl?raw';
import codeSubgroup432x16 from '../../../kernels/matmul_subgroup4_32x16.wgsl?raw';
import codeSubgroup432x8 from '../../../kernels/matmul_subgroup4_32x8.wgsl?raw';
import codeSubgroup44x4 from '../../../kernels/matmul_subgroup4_4x4.wgsl?raw';
import codeSubgroup48x4 from '../../../kernels/matmul_subgroup4_8x4.wgsl?raw';
import codeSubgroup816x4 from '../../../kernels/matmul_subgroup8_16x4.wgsl?raw';
import codeSubgroup816x8 from '../../../kernels/matmul_subgroup8_16x8.wgsl?raw';
import codeSubgroup832x8 from '../../../kernels/matmul_subgroup8_32x8.wgsl?raw';
import codeSubgroup88x2 from '../../../kernels/matmul_subgroup8_8x2.wgsl?raw';
import codeSubgroup88x8 from '../../../kernels/matmul_subgroup8_8x8.wgsl?raw';
import codeWorkgroup4x4 from '../../../kernels/matmul_workgroup_4x4.wgsl?raw';
import codeWorkgroup8x4 from '../../../kernels/matmul_workgroup_8x4.wgsl?raw';
import type { AdapterSummary, Gpu, View } from '../device.ts';
import { defineKernel, type Kernel } from '../kernel.ts';
import { expectElements } from '../shape.ts';

const params = {
  M: 'u32',
  N: 'u32',
  K: 'u32',
  rowA: 'u32',
  stepA: 'u32',
  stepB: 'u32',
  colB: 'u32',
  added: 'u32',
  accumulate: 'u32',
} as const;

/** A tile shape: rows x cols outputs a thread, columns one `lane` apart. `subgroup`: lanes share their loads. */
const variant = (name: string, code: string, rows: number, cols: number, workgroup: number, lanes = 0) => ({
  kernel: defineKernel({ name: `matmul_${name}`, code, read: ['a', 'b', 'add'], write: ['y'], params }),
  rows,
  cols,
  workgroup,
  /** Threads side by side; 0 = as many as the subgroup has. */
  lanes,
  subgroup: lanes === 0,
  /** Whether it knows added = 3, SwiGLU. */
  gated: code.includes('fn gated('),
});

/** Every variant gives the same bits on one adapter; they differ in speed alone. */
export const MATMUL_VARIANTS = {
  subgroup4_32x16: variant('subgroup4_32x16', codeSubgroup432x16, 32, 16, 8),
  subgroup4_32x8: variant('subgroup4_32x8', codeSubgroup432x8, 32, 8, 8),
  subgroup4_16x4: variant('subgroup4_16x4', codeSubgroup416x4, 16, 4, 16),
  subgroup4_8x4: variant('subgroup4_8x4', codeSubgroup48x4, 8, 4, 16),
  subgroup4_4x4: variant('subgroup4_4x4', codeSubgroup44x4, 4, 4, 16),
  subgroup8_32x8: variant('subgroup8_32x8', codeSubgroup832x8, 32, 8, 8),
  subgroup8_16x8: variant('subgroup8_16x8', codeSubgroup816x8, 16, 8, 16),
  subgroup8_8x8: variant('subgroup8_8x8', codeSubgroup88x8, 8, 8, 16),
  subgroup8_16x4: variant('subgroup8_16x4', codeSubgroup816x4, 16, 4, 64),
  subgroup8_8x2: variant('subgroup8_8x2', codeSubgroup88x2, 8, 2, 64),
  plain_8x8: variant('plain_8x8', codePlain8x8, 8, 8, 64, 4),
  plain_4x4: variant('plain_4x4', codePlain4x4, 4, 4, 64, 4),
  plain_4x1: variant('plain_4x1', codePlain4x1, 4, 1, 32, 32),
  // Tiles of 64 x 64 and 128 x 64 a workgroup; for `groups` one thread of 256 with all of them.
  workgroup_4x4: variant('workgroup_4x4', codeWorkgroup4x4, 64, 64, 1, 1),
  workgroup_8x4: variant('workgroup_8x4', codeWorkgroup8x4, 128, 64, 1, 1),
} as const;

export type MatmulVariant = keyof typeof MATMUL_VARIANTS;

/**
 * Up to how many rows each tile is used, and what to take instead where more than a sixteenth of its columns would lie past
 * the end; the last row has no bound.
 */
export type MatmulTable = readonly (readonly [upToRows: number, tile: MatmulVariant, narrower?: MatmulVariant])[];

/** Where each tile is the fastest; see docs/performance.md. The last two rest on no measurement. */
const BY_ROWS: Record<'four' | 'eight' | 'wide' | 'none', MatmulTable> = {
  four: [
    [4, 'subgroup4_4x4'],
    [8, 'subgroup4_8x4'],
    [16, 'subgroup4_16x4'],
    [Infinity, 'subgroup4_32x16', 'subgroup4_32x8'],
  ],
  eight: [
    [8, 'subgroup8_8x8'],
    [16, 'subgroup8_16x8'],
    [Infinity, 'subgroup8_32x8'],
  ],
  wide: [
    [32, 'subgroup8_8x2'],
    [Infinity, 'subgroup8_16x4'],
  ],
  none: [
    [32, 'plain_4x4'],
    [Infinity, 'plain_8x8'],
  ],
};

const pinned = new WeakMap<Gpu, MatmulTable>();

/** The tiles this device uses from now on, in place of the built-in table's; undefined = the built-in ones again. */
export function useMatmulTable(gpu: Gpu, table: MatmulTable | undefined): void {
  if (table) pinned.set(gpu, table);
  else pinned.delete(gpu);
}

/** The tiles this device uses: those that were found or pinned, else the built-in choice by subgroup size. */
export const matmulTable = (gpu: Gpu): MatmulTable => pinned.get(gpu) ?? BY_ROWS[family(gpu.adapter)];

/** Whether the built-in table was measured on such an adapter: subgroups of 4 are SwiftShader's, of 8 lavapipe's. */
export const isMeasured = ({ adapter }: Gpu): boolean =>
  adapter.isSoftware && ['four', 'eight'].includes(family(adapter));

/** The tile by rows and columns: loads are what costs, and lanes of a subgroup can share them. */
export function chooseMatmul(gpu: Gpu, M: number, N: number): MatmulVariant {
  const [, tile, narrower] = matmulTable(gpu).find(([rows]) => M <= rows)!;
  const width = MATMUL_VARIANTS[tile].cols * gpu.adapter.subgroupSize;
  const best = narrower && Math.ceil(N / width) * width > N * 1.0625 ? narrower : tile;
  return gpu.isCompiling(MATMUL_VARIANTS[best].kernel) ? compiledTile(gpu, best) : best;
}

/** Meanwhile another tile serves, which gives the same bits: the one for most rows that is there. */
function compiledTile(gpu: Gpu, wanted: MatmulVariant): MatmulVariant {
  const there = matmulTable(gpu).filter(([, tile]) => !gpu.isCompiling(MATMUL_VARIANTS[tile].kernel));
  return there.at(-1)?.[1] ?? wanted;
}

/** Lanes that share a variant's loads. */
const LANES: Readonly<Record<string, number>> = { plain: 0, subgroup4: 4, subgroup8: 8 };

/** True where the adapter has subgroups as wide as the variant needs, and no wider than its workgroup. */
export function runsOn({ adapter }: Gpu, variant: MatmulVariant): boolean {
  const { subgroup, workgroup } = MATMUL_VARIANTS[variant];
  if (!subgroup) return true;
  return adapter.subgroupSize >= LANES[variant.split('_')[0]] && adapter.subgroupMaxSize <= workgroup;
}

/** What `chooseMatmul` chooses among on this adapter, the largest first: it takes longest to compile. */
export const matmulKernels = (gpu: Gpu): Kernel[] => kernelsOf(matmulTable(gpu));

/** Of these, what is enough to start with: the tiles for most rows take a software adapter longer than all others. */
export function firstMatmulKernels(gpu: Gpu): Kernel[] {
  const table = matmulTable(gpu);
  return kernelsOf(table.length > 1 ? table.slice(0, -1) : table);
}

const kernelsOf = (table: MatmulTable): Kernel[] => {
  const tiles = table.flatMap(([, ...tiles]) => tiles.filter((tile) => tile !== undefined).reverse());
  return [...new Set(tiles)].map((tile) => MATMUL_VARIANTS[tile].kernel as Kernel).reverse();
};

/** Subgroups of 4 and 8 are software adapters', with registers to spill and a stack to spill to: their tiles are large. */
function family({ subgroupSize, subgroupMaxSize }: AdapterSummary): keyof typeof BY_ROWS {
  if (subgroupSize >= 8) return subgroupMaxSize === 8 ? 'eight' : 'wide';
  return subgroupSize >= 4 && subgroupMaxSize <= 8 ? 'four' : 'none';
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

/**
 * Records y [M, N / 2] = silu(gate) * up, where x b = [gate | up], with the bits of the product and `swiglu` after it, where
 * the tile that is chosen can. Returns false, and records nothing, where it cannot, and for a y of halves: without this, gate
 * and up are rounded to halves in between, and lavapipe's compiler takes such a rounding out of a kernel.
 */
export function gatedMatmul(gpu: Gpu, args: Omit<MatmulArgs, 'add' | 'bias' | 'accumulate'>): boolean {
  const { M, N, K } = args;
  const variant = args.variant ?? chooseMatmul(gpu, M, N);
  if (args.y.half || !MATMUL_VARIANTS[variant].gated) return false;
  record(gpu, { ...args, variant }, { M, N, K, rowA: K, stepA: 1, stepB: N, colB: 1 }, 0, 3);
  return true;
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
  sizes: Record<Exclude<keyof typeof params, 'added' | 'accumulate'>, number>,
  accumulate: 0 | 1,
  added = add ? 2 : bias ? 1 : 0, // 3: SwiGLU
): void {
  const { M, N, K } = sizes;
  const width = added === 3 ? N / 2 : N;
  expectElements('matmul x [M, K]', x, M * K);
  expectElements('matmul b [K, N]', b, K * N);
  expectElements(`matmul y [M, ${width === N ? 'N' : 'N / 2'}]`, y, M * width);
  const chosen = MATMUL_VARIANTS[variant ?? chooseMatmul(gpu, M, N)];
  const values = { ...sizes, added, accumulate };
  // What is not added must still be bound; as plain bytes, since `add` never holds halves.
  const unused = x.half ? { ...x, half: false } : x;
  gpu.dispatch(chosen.kernel, { a: x, b, add: add ?? bias ?? unused, y }, values, groups(gpu, chosen, M, N));
}

/** Workgroups for every tile. The subgroup size may vary within [min, max] of the adapter; both ends are covered. */
function groups({ adapter }: Gpu, tile: (typeof MATMUL_VARIANTS)[MatmulVariant], M: number, N: number) {
  const { rows, cols, workgroup, lanes, subgroup } = tile;
  const need = (lanes: number) =>
    Math.ceil((Math.ceil(M / rows) * Math.ceil(N / (cols * lanes))) / (workgroup / lanes));
  if (!subgroup) return need(lanes);
  return Math.max(need(adapter.subgroupSize), need(Math.min(adapter.subgroupMaxSize, workgroup)));
}

/** What the choice by timing works with: handed to it, since a module that two parts of a bundle import is cut off from both. */
export const matmulTiles = { variants: MATMUL_VARIANTS, matmulNn, runsOn, isMeasured, useMatmulTable };
export type MatmulTiles = typeof matmulTiles;
