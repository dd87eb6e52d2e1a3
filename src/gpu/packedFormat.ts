/** Packed formats of frozen weights. Contains no kernels, because configs import it. */
export const PACKED_FORMATS = ['float16', 'int8', 'int4'] as const;
export type PackedFormat = (typeof PACKED_FORMATS)[number];

/** Number of values that share a scale. */
export const PACKED_BLOCK = 32;
const BLOCK_WORDS = { float16: 16, int8: 9, int4: 5 };

/** Bytes of n packed values. */
export const packedBytes = (format: PackedFormat, n: number): number =>
  Math.ceil(n / PACKED_BLOCK) * BLOCK_WORDS[format] * 4;

/**
 * True if a product can read a packed [rows, cols] matrix directly. It reads eight values at a time, which must be in one row and one
 * block.
 */
export const fitsPackedProduct = (rows: number, cols: number): boolean => rows % 8 === 0 && cols % 8 === 0;
