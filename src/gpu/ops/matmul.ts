import { printMatmul } from '../../../kernels/matmul.ts';
import { MATMUL_TILES, type MatmulTile, type MatmulVariant } from '../../../kernels/tiles.ts';
import { type AdapterFamily, adapterFamily } from '../adapterFamily.ts';
import type { Gpu, View } from '../device.ts';
import { type Kernel, kernelFamily } from '../kernel.ts';
import { expectElements } from '../view.ts';

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

/** Returns the kernel of a tile. All tiles compute the same bits on one adapter and differ only in speed. */
export const matmulKernel = kernelFamily(
  { read: ['a', 'b', 'add'], write: ['y'], params },
  (variant: MatmulVariant) => `matmul_${variant}`,
  (variant) => printMatmul(MATMUL_TILES[variant]),
);

/**
 * Table of tiles. An entry has the largest number of rows that its tile is used for, the tile, and optionally a narrower tile. The narrower
 * tile is used if more than a sixteenth of the tile's columns would be past the end of y. The last entry has no upper bound.
 */
export type MatmulTable = readonly (readonly [upToRows: number, tile: MatmulVariant, narrower?: MatmulVariant])[];

/**
 * Fastest tile by number of rows, for each adapter family; see docs/lab/log.md. The table of `wide` was measured on one NVIDIA H200, that of
 * `none` nowhere.
 */
const BY_ROWS: Record<AdapterFamily, MatmulTable> = {
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
    [64, 'workgroup_2x2'],
    [256, 'workgroup_4x2'],
    [512, 'workgroup_4x4'],
    [Infinity, 'workgroup_8x4'],
  ],
  none: [
    [32, 'plain_4x4'],
    [Infinity, 'plain_8x8'],
  ],
};

const pinned = new WeakMap<Gpu, MatmulTable>();

/** Sets the tiles that this device uses. Undefined restores the built-in table. */
export function useMatmulTable(gpu: Gpu, table: MatmulTable | undefined): void {
  if (table) pinned.set(gpu, table);
  else pinned.delete(gpu);
}

/** Returns the tiles that this device uses: those set by `useMatmulTable`, otherwise the built-in ones of its family. */
export const matmulTable = (gpu: Gpu): MatmulTable => pinned.get(gpu) ?? BY_ROWS[adapterFamily(gpu.adapter)];

/** True if the built-in table was measured on adapters of this family. */
export const isMeasured = ({ adapter }: Gpu): boolean => ['four', 'eight'].includes(adapterFamily(adapter));

/** Columns of the products by which tune.ts times the tiles on hardware. */
export const TIMED_COLUMNS = 1024;

/**
 * Chooses the tile by rows and columns. On a software adapter, loads dominate the cost, and rows share them. On hardware, a product of few
 * outputs does not fill the GPU with large tiles: a table's rows are of products with TIMED_COLUMNS columns. If the best tile is not
 * compiled yet, returns a compiled one, and counts the M x N x K multiplications that it does in place of the best one.
 */
export function chooseMatmul(gpu: Gpu, M: number, N: number, K = 0): MatmulVariant {
  const size = gpu.adapter.isSoftware ? M : (M * N) / TIMED_COLUMNS;
  const [, tile, narrower] = matmulTable(gpu).find(([rows]) => size <= rows)!;
  const width = MATMUL_TILES[tile].cols * gpu.adapter.subgroupSize;
  const best = narrower && Math.ceil(N / width) * width > N * 1.0625 ? narrower : tile;
  const kernel: Kernel = matmulKernel(best);
  if (!gpu.isCompiling(kernel)) return best;
  gpu.standIn(kernel, M * N * K);
  return compiledTile(gpu, best);
}

/** Returns a tile to use until the wanted one is compiled, with the same bits: of the compiled tiles, the one for the most rows. */
function compiledTile(gpu: Gpu, wanted: MatmulVariant): MatmulVariant {
  const there = matmulTable(gpu).filter(([, tile]) => !gpu.isCompiling(matmulKernel(tile)));
  return there.at(-1)?.[1] ?? wanted;
}

/**
 * Maximum number of sums that fit into the registers of a hardware GPU's thread. A software adapter keeps more sums on a stack without
 * being slower.
 */
const MOST_SUMS = 64;

/**
 * True if the adapter has subgroups that are as wide as the tile needs and no wider than its workgroup. A phone with
 * subgroups of 4 could run SwiftShader's tiles of up to 512 sums, but must not compile them.
 */
export function runsOn({ adapter }: Gpu, variant: MatmulVariant): boolean {
  const tile = MATMUL_TILES[variant];
  if ('depth' in tile || tile.subgroup === 0) return true;
  if (!adapter.isSoftware && tile.rows * tile.cols > MOST_SUMS) return false;
  return adapter.subgroupSize >= tile.subgroup && adapter.subgroupMaxSize <= tile.workgroup;
}

/** Returns the kernels that `chooseMatmul` can choose on this adapter, largest tile first, because the largest takes longest to compile. */
export const matmulKernels = (gpu: Gpu): Kernel[] => kernelsOf(matmulTable(gpu));

/** Returns the kernels to compile first. Tiles for many rows are postponed, because they take longest to compile on a software adapter. */
export function firstMatmulKernels(gpu: Gpu): Kernel[] {
  const table = matmulTable(gpu);
  return kernelsOf(table.length > 1 ? table.slice(0, -1) : table);
}

/**
 * After this number of multiplications, not having the tile for many rows has cost a software adapter as much time as compiling that tile.
 */
export const WORTH_COMPILING = 5e9;

const kernelsOf = (table: MatmulTable): Kernel[] => {
  const tiles = table.flatMap(([, ...tiles]) => tiles.filter((tile) => tile !== undefined).reverse());
  return [...new Set(tiles)].map((tile) => matmulKernel(tile) as Kernel).reverse();
};

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
  /** True for y += instead of y =. */
  accumulate?: boolean;
  /** Tile to use instead of the fastest one, for tests and benchmarks. */
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
 * Records y [M, N / 2] = silu(gate) * up, where x b = [gate | up], if the chosen tile supports it. The bits equal those of the product
 * followed by `swiglu`. Otherwise records nothing and returns false. Also returns false if y has halves: the separate kernels round gate
 * and up to halves in between, and lavapipe's compiler would remove such a rounding inside a kernel.
 */
export function gatedMatmul(gpu: Gpu, args: Omit<MatmulArgs, 'add' | 'bias' | 'accumulate'>): boolean {
  const { M, N, K } = args;
  const variant = args.variant ?? chooseMatmul(gpu, M, N, K);
  if (args.y.half || !isGated(MATMUL_TILES[variant])) return false;
  record(gpu, { ...args, variant }, { M, N, K, rowA: K, stepA: 1, stepB: N, colB: 1 }, 0, 3);
  return true;
}

/** True if a tile supports SwiGLU inside the product (`added` = 3). */
export const isGated = (tile: MatmulTile): boolean => 'gated' in tile && tile.gated === true;

interface MatmulTnArgs {
  /** [K, M]; rows are tokens */
  a: View;
  /** [K, N] */
  b: View;
  /** [M, N] accumulates */
  y: View;
  M: number;
  N: number;
  K: number;
  /** True or undefined for y +=, false for y =. */
  accumulate?: boolean;
  variant?: MatmulVariant;
}

/** Records the weight gradient y += a^T b, or y = a^T b. */
export function matmulTn(gpu: Gpu, { a, ...args }: MatmulTnArgs): void {
  const { M, N, K, accumulate = true } = args;
  record(gpu, { x: a, ...args }, { M, N, K, rowA: 1, stepA: M, stepB: N, colB: 1 }, accumulate ? 1 : 0);
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
  const chosen = variant ?? chooseMatmul(gpu, M, N, K);
  const values = { ...sizes, added, accumulate };
  // WGSL requires a buffer for the binding `add` even if nothing is added. x is bound as plain bytes, because `add` never has halves.
  const unused = x.half ? { ...x, half: false } : x;
  const views = { a: x, b, add: add ?? bias ?? unused, y };
  gpu.dispatch(matmulKernel(chosen), views, values, groups(gpu, MATMUL_TILES[chosen], M, N));
}

/**
 * Returns the number of workgroups of a tile for M x N outputs. The adapter can use any subgroup size from its minimum to its maximum, so
 * the number is enough for either of them.
 */
function groups({ adapter }: Gpu, tile: MatmulTile, M: number, N: number): number {
  if ('depth' in tile) {
    const { rows, cols, side = 16 } = tile;
    return Math.ceil(M / (side * rows)) * Math.ceil(N / (side * cols));
  }
  const { rows, cols, workgroup, lanes } = tile;
  const need = (lanes: number) =>
    Math.ceil((Math.ceil(M / rows) * Math.ceil(N / (cols * lanes))) / (workgroup / lanes));
  if (lanes) return need(lanes);
  return Math.max(need(adapter.subgroupSize), need(Math.min(adapter.subgroupMaxSize, workgroup)));
}
