/** Tile shapes of every variant of the matrix product. Printers, wrappers, tests and timing all read these tables. */

/**
 * A tile whose sums are in registers. A thread computes rows x cols outputs. Its columns are as far apart as there are threads side by side
 * (`lanes`).
 */
export interface RegisterTile {
  rows: number;
  cols: number;
  /** Number of steps of k that are unrolled. */
  unroll: number;
  /** Threads in a workgroup. */
  workgroup: number;
  /** Smallest subgroup size that the tile needs. The lanes of a subgroup load different rows of a and broadcast them. 0 = no subgroups. */
  subgroup: 0 | 4 | 8;
  /** Number of threads side by side. Undefined: the subgroup size. */
  lanes?: number;
  /**
   * True if the four lanes of a quad swap rows instead of broadcasting them. Each lane of the quad then sums a different row. On
   * SwiftShader a swap is one instruction, a broadcast several.
   */
  quad?: boolean;
  /** True if the tile supports SwiGLU inside the product (`added` = 3). */
  gated?: boolean;
}

/**
 * A tile in workgroup memory: side x side threads of rows x cols outputs each, both multiples of 2; `depth` steps of k at a time, a multiple
 * of side.
 */
export interface WorkgroupTile {
  rows: number;
  cols: number;
  depth: number;
  /** 16 if undefined. */
  side?: number;
}

export type MatmulTile = RegisterTile | WorkgroupTile;

/** A tile of the product with packed weights: rows x 8 outputs per thread, in neighbouring columns. */
export type PackedTile = Pick<RegisterTile, 'rows' | 'workgroup' | 'subgroup' | 'lanes' | 'quad'>;

/** A name has the number of lanes that share loads, then rows x columns per thread. */
const matmul = {
  subgroup4_32x16: { rows: 32, cols: 16, unroll: 8, subgroup: 4, workgroup: 8, quad: true, gated: true },
  subgroup4_32x8: { rows: 32, cols: 8, unroll: 8, subgroup: 4, workgroup: 8, quad: true, gated: true },
  subgroup4_16x4: { rows: 16, cols: 4, unroll: 8, subgroup: 4, workgroup: 16, quad: true, gated: true },
  subgroup4_8x4: { rows: 8, cols: 4, unroll: 8, subgroup: 4, workgroup: 16, quad: true, gated: true },
  subgroup4_4x4: { rows: 4, cols: 4, unroll: 8, subgroup: 4, workgroup: 16, quad: true, gated: true },
  subgroup8_32x8: { rows: 32, cols: 8, unroll: 2, subgroup: 8, workgroup: 8, gated: true },
  subgroup8_16x8: { rows: 16, cols: 8, unroll: 1, subgroup: 8, workgroup: 16, gated: true },
  subgroup8_8x8: { rows: 8, cols: 8, unroll: 1, subgroup: 8, workgroup: 16 },
  subgroup8_16x4: { rows: 16, cols: 4, unroll: 1, subgroup: 8, workgroup: 64, gated: true },
  subgroup8_8x2: { rows: 8, cols: 2, unroll: 1, subgroup: 8, workgroup: 64, gated: true },
  plain_8x8: { rows: 8, cols: 8, unroll: 1, subgroup: 0, workgroup: 64, lanes: 4 },
  plain_4x4: { rows: 4, cols: 4, unroll: 2, subgroup: 0, workgroup: 64, lanes: 4 },
  plain_4x1: { rows: 4, cols: 1, unroll: 4, subgroup: 0, workgroup: 32, lanes: 32 },
  workgroup_2x2: { rows: 2, cols: 2, depth: 64, side: 8 },
  workgroup_4x2: { rows: 4, cols: 2, depth: 32 },
  workgroup_4x4: { rows: 4, cols: 4, depth: 16 },
  workgroup_8x4: { rows: 8, cols: 4, depth: 16 },
} satisfies Record<string, MatmulTile>;

const packed = {
  subgroup4_32x8: { rows: 32, subgroup: 4, workgroup: 8, quad: true },
  subgroup4_8x8: { rows: 8, subgroup: 4, workgroup: 16, quad: true },
  subgroup4_4x8: { rows: 4, subgroup: 4, workgroup: 16, quad: true },
  subgroup8_8x8: { rows: 8, subgroup: 8, workgroup: 16 },
  plain_8x8: { rows: 8, subgroup: 0, workgroup: 64, lanes: 4 },
  plain_2x8: { rows: 2, subgroup: 0, workgroup: 64, lanes: 4 },
} satisfies Record<string, PackedTile>;

export type MatmulVariant = keyof typeof matmul;
export type PackedVariant = keyof typeof packed;

export const MATMUL_TILES: Readonly<Record<MatmulVariant, MatmulTile>> = matmul;
export const PACKED_TILES: Readonly<Record<PackedVariant, PackedTile>> = packed;

/** Returns the names in a table, typed as the table's own names instead of as strings. */
export const namesOf = <K extends string>(table: Readonly<Record<K, unknown>>): K[] => Object.keys(table) as K[];
