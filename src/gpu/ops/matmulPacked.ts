/**
 * Matrix products with packed weights, which are converted to float32 as they are loaded. This file is imported only if a model has such
 * weights.
 */

import { printPacked } from '../../../kernels/matmulPacked.ts';
import { PACKED_TILES, type PackedTile, type PackedVariant } from '../../../kernels/tiles.ts';
import { type AdapterFamily, adapterFamily } from '../adapterFamily.ts';
import type { Gpu } from '../device.ts';
import { type Kernel, kernelFamily } from '../kernel.ts';
import { fitsPackedProduct, PACKED_FORMATS, packedBytes, type PackedFormat } from '../packedFormat.ts';
import { expectElements } from '../view.ts';
import type { MatmulArgs } from './matmul.ts';

const params = {
  M: 'u32',
  N: 'u32',
  K: 'u32',
  run: 'u32',
  block: 'u32',
  col: 'u32',
  added: 'u32',
  accumulate: 'u32',
} as const;

/**
 * Returns the kernel of a tile. All tiles compute the bits of unpacking followed by a float32 product, and differ only
 * in speed.
 */
export const packedKernel = kernelFamily(
  { read: ['a', 'b', 'add'], write: ['y'], params },
  (variant: PackedVariant) => `matmul_packed_${variant}`,
  (variant) => printPacked(PACKED_TILES[variant]),
);

type PackedTable = readonly (readonly [upToRows: number, tile: PackedVariant])[];

const PLAIN: PackedTable = [
  [4, 'plain_2x8'],
  [Infinity, 'plain_8x8'],
];
/** Tiles by adapter family, each with the maximum number of rows that it is used for. */
const BY_ROWS: Record<AdapterFamily, PackedTable> = {
  four: [
    [4, 'subgroup4_4x8'],
    [16, 'subgroup4_8x8'],
    [Infinity, 'subgroup4_32x8'],
  ],
  eight: [[Infinity, 'subgroup8_8x8']],
  wide: PLAIN,
  none: PLAIN,
};

const tilesOf = ({ adapter }: Gpu): PackedTable => BY_ROWS[adapterFamily(adapter)];

/** True if the adapter has subgroups as wide as the tile needs. A tile that swaps within quads needs subgroups of 4. */
export function packedRunsOn({ adapter }: Gpu, variant: PackedVariant): boolean {
  const { subgroup, quad, workgroup }: PackedTile = PACKED_TILES[variant];
  if (subgroup === 0) return true;
  return adapter.subgroupSize >= subgroup && adapter.subgroupMaxSize <= (quad ? subgroup : workgroup);
}

export interface PackedMatmulArgs extends Omit<MatmulArgs, 'variant'> {
  /** True if b is [N, K]. */
  transposed?: boolean;
  /** Tile to use instead of the fastest one, for tests and benchmarks. */
  tile?: PackedVariant;
}

/** Returns the kernels that products of any size can choose on this adapter. */
export const packedKernels = (gpu: Gpu): Kernel[] => tilesOf(gpu).map(([, variant]) => packedKernel(variant));

/** Compiles the kernels that products with these weights will use. */
export async function preparePacked(gpu: Gpu, format: PackedFormat): Promise<void> {
  const kernels = packedKernels(gpu);
  await Promise.all(kernels.flatMap((kernel) => [0, 1].map((NT) => gpu.prepare(kernel, overridesOf(format, NT)))));
}

/** Records y = x b or, if transposed, x b^T (+ add | + bias) for packed b. N and K are multiples of 8. */
export function matmulPacked(gpu: Gpu, args: PackedMatmulArgs): void {
  const { x, b, add, bias, y, M, N, K, transposed = false } = args;
  const { format } = b.packed!;
  if (!fitsPackedProduct(N, K)) throw new RangeError(`A packed product is [${K}, ${N}]; both must be multiples of 8.`);
  expectElements('packed matmul x [M, K]', x, M * K);
  expectElements('packed matmul b [words]', b, packedBytes(format, K * N) / 4);
  expectElements('packed matmul y [M, N]', y, M * N);
  const variant = args.tile ?? tilesOf(gpu).find(([rows]) => M <= rows)![1];
  const lies = transposed ? { run: K, block: 8, col: K } : { run: N, block: 8 * N, col: 1 };
  const values = { M, N, K, ...lies, added: add ? 2 : bias ? 1 : 0, accumulate: args.accumulate ? 1 : 0 };
  // WGSL requires a buffer for the binding `add` even if nothing is added. x is bound as plain bytes, because `add` never has halves.
  const unused = x.half ? { ...x, half: false } : x;
  const views = { a: x, b, add: add ?? bias ?? unused, y };
  const overrides = overridesOf(format, transposed ? 1 : 0);
  gpu.dispatch(packedKernel(variant), views, values, groups(gpu, PACKED_TILES[variant], M, N), overrides);
}

const overridesOf = (format: PackedFormat, NT: number) => ({ FORMAT: PACKED_FORMATS.indexOf(format), NT });

/**
 * Returns the number of workgroups of a tile for M x N outputs. The adapter can use any subgroup size from its minimum to its maximum, so
 * the number is enough for either of them.
 */
function groups({ adapter }: Gpu, { rows, workgroup, lanes }: PackedTile, M: number, N: number): number {
  const need = (size: number) => Math.ceil((Math.ceil(M / rows) * Math.ceil(N / (8 * size))) / (workgroup / size));
  if (lanes) return need(lanes);
  return Math.max(need(adapter.subgroupSize), need(Math.min(adapter.subgroupMaxSize, workgroup)));
}
