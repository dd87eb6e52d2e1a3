/** Products whose weights are packed, made float32 in the load. Asked for only where there are such weights. */

import codePlain2x8 from '../../../kernels/matmul_packed_plain_2x8.wgsl?raw';
import codePlain8x8 from '../../../kernels/matmul_packed_plain_8x8.wgsl?raw';
import codeSubgroup432x8 from '../../../kernels/matmul_packed_subgroup4_32x8.wgsl?raw';
import codeSubgroup44x8 from '../../../kernels/matmul_packed_subgroup4_4x8.wgsl?raw';
import codeSubgroup48x8 from '../../../kernels/matmul_packed_subgroup4_8x8.wgsl?raw';
import codeSubgroup88x8 from '../../../kernels/matmul_packed_subgroup8_8x8.wgsl?raw';
import type { Gpu } from '../device.ts';
import { defineKernel, type Kernel } from '../kernel.ts';
import { fitsPackedProduct, PACKED_FORMATS, packedBytes, type PackedFormat } from '../packedFormat.ts';
import { expectElements } from '../shape.ts';
import type { MatmulArgs } from './matmul.ts';

const params = {
  ...({ M: 'u32', N: 'u32', K: 'u32', run: 'u32', block: 'u32', col: 'u32' } as const),
  ...({ added: 'u32', accumulate: 'u32' } as const),
};

/** A tile of rows x 8 outputs a thread; `lanes`: subgroup size that it needs at least, 0 = none. */
const tile = (name: string, code: string, rows: number, workgroup: number, lanes: 0 | 4 | 8) => ({
  kernel: defineKernel({ name: `matmul_${name}`, code, read: ['a', 'b', 'add'], write: ['y'], params }),
  ...{ rows, workgroup, lanes },
});

/** Every tile gives the bits of unpacking and a float32 product after it; they differ in speed alone. */
export const PACKED_TILES = {
  subgroup4_32x8: tile('packed_subgroup4_32x8', codeSubgroup432x8, 32, 8, 4),
  subgroup4_8x8: tile('packed_subgroup4_8x8', codeSubgroup48x8, 8, 16, 4),
  subgroup4_4x8: tile('packed_subgroup4_4x8', codeSubgroup44x8, 4, 16, 4),
  subgroup8_8x8: tile('packed_subgroup8_8x8', codeSubgroup88x8, 8, 16, 8),
  plain_8x8: tile('packed_plain_8x8', codePlain8x8, 8, 64, 0),
  plain_2x8: tile('packed_plain_2x8', codePlain2x8, 2, 64, 0),
} as const;

export type PackedTile = keyof typeof PACKED_TILES;

/** Up to how many rows each tile is taken, by the family of the adapter. */
const BY_ROWS: Record<'four' | 'eight' | 'plain', [number, PackedTile][]> = {
  four: [
    [4, 'subgroup4_4x8'],
    [16, 'subgroup4_8x8'],
    [Infinity, 'subgroup4_32x8'],
  ],
  eight: [[Infinity, 'subgroup8_8x8']],
  plain: [
    [4, 'plain_2x8'],
    [Infinity, 'plain_8x8'],
  ],
};

const tilesOf = ({ adapter: { subgroupSize, subgroupMaxSize } }: Gpu) =>
  BY_ROWS[subgroupMaxSize > 8 || subgroupSize < 4 ? 'plain' : subgroupSize < 8 ? 'four' : 'eight'];

/** True where the adapter has subgroups as wide as the tile needs; one of four is made for subgroups of four alone. */
export function packedTileRuns({ adapter }: Gpu, name: PackedTile): boolean {
  const { lanes, workgroup } = PACKED_TILES[name];
  const widest = lanes === 4 ? 4 : workgroup;
  return lanes === 0 || (adapter.subgroupSize >= lanes && adapter.subgroupMaxSize <= widest);
}

export interface PackedMatmulArgs extends Omit<MatmulArgs, 'variant'> {
  /** b is [N, K]. */
  transposed?: boolean;
  /** Pins a tile (tests, benchmarks). */
  tile?: PackedTile;
}

/** Compiles what products of these weights will use. */
export async function preparePacked(gpu: Gpu, format: PackedFormat): Promise<void> {
  const kernels = tilesOf(gpu).map(([, name]) => PACKED_TILES[name].kernel as Kernel);
  await Promise.all(kernels.flatMap((kernel) => [0, 1].map((NT) => gpu.prepare(kernel, overridesOf(format, NT)))));
}

/** Records y = x b or, transposed, x b^T (+ add | + bias) for packed b. N and K are multiples of 8. */
export function matmulPacked(gpu: Gpu, args: PackedMatmulArgs): void {
  const { x, b, add, bias, y, M, N, K, transposed = false } = args;
  const { format } = b.packed!;
  if (!fitsPackedProduct(N, K)) throw new RangeError(`A packed product is [${K}, ${N}]; both must be multiples of 8.`);
  expectElements('packed matmul x [M, K]', x, M * K);
  expectElements('packed matmul b [words]', b, packedBytes(format, K * N) / 4);
  expectElements('packed matmul y [M, N]', y, M * N);
  const name = args.tile ?? tilesOf(gpu).find(([rows]) => M <= rows)![1];
  const lies = transposed ? { run: K, block: 8, col: K } : { run: N, block: 8 * N, col: 1 };
  const values = { M, N, K, ...lies, added: add ? 2 : bias ? 1 : 0, accumulate: args.accumulate ? 1 : 0 };
  // What is not added must still be bound; as plain bytes, since `add` never holds halves.
  const unused = x.half ? { ...x, half: false } : x;
  const views = { a: x, b, add: add ?? bias ?? unused, y };
  const overrides = overridesOf(format, transposed ? 1 : 0);
  gpu.dispatch(PACKED_TILES[name].kernel, views, values, groups(gpu, PACKED_TILES[name], M, N), overrides);
}

const overridesOf = (format: PackedFormat, NT: number) => ({ FORMAT: PACKED_FORMATS.indexOf(format), NT });

/** Workgroups for every tile; the subgroup size may vary within [min, max] of the adapter, and both ends are covered. */
function groups({ adapter }: Gpu, { rows, workgroup, lanes }: (typeof PACKED_TILES)[PackedTile], M: number, N: number) {
  const need = (size: number) => Math.ceil((Math.ceil(M / rows) * Math.ceil(N / (8 * size))) / (workgroup / size));
  if (lanes === 0) return need(4);
  return Math.max(need(adapter.subgroupSize), need(Math.min(adapter.subgroupMaxSize, workgroup)));
}
