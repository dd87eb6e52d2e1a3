/**
 * Unpacks weights from ggml's formats: blocks of 32 or 256 neighbouring values of a row, each block with its own scales. The float32 values
 * equal those of ggml's `dequantize_row_*`. https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h
 */

import { PACKED_BLOCK, packedBytes, type PackedFormat } from '../../gpu/packedFormat.ts';
import { decodeTensor } from '../../model/checkpoint/safetensors.ts';

/** Supported types: ggml's id, values per block, and bytes per block. */
export const BLOCKS = {
  F32: { number: 0, values: 1, bytes: 4 },
  F16: { number: 1, values: 1, bytes: 2 },
  Q4_0: { number: 2, values: 32, bytes: 18 },
  Q4_1: { number: 3, values: 32, bytes: 20 },
  Q5_0: { number: 6, values: 32, bytes: 22 },
  Q5_1: { number: 7, values: 32, bytes: 24 },
  Q8_0: { number: 8, values: 32, bytes: 34 },
  Q4_K: { number: 12, values: 256, bytes: 144 },
  Q5_K: { number: 13, values: 256, bytes: 176 },
  Q6_K: { number: 14, values: 256, bytes: 210 },
  BF16: { number: 30, values: 1, bytes: 2 },
} as const;

export type GgmlType = keyof typeof BLOCKS;

export const READ_TYPES = Object.keys(BLOCKS) as GgmlType[];

/** Returns the type with an id of ggml; undefined if that type is not supported. */
export const ggmlType = (number: number): GgmlType | undefined =>
  READ_TYPES.find((type) => BLOCKS[type].number === number);

/** Decodes complete blocks and returns their values as float32. */
export function unpackBlocks(type: GgmlType, bytes: Uint8Array): Float32Array {
  if (type === 'F32' || type === 'F16' || type === 'BF16') return decodeTensor(type, bytes);
  const { values, bytes: width } = BLOCKS[type];
  const out = new Float32Array((bytes.length / width) * values);
  const unpack = UNPACK[type];
  for (let at = 0, to = 0; at < bytes.length; at += width, to += values) unpack(bytes, at, out, to);
  return out;
}

/** Decodes the block at byte `at` into `out`, starting at index `to`. */
type Unpack = (bytes: Uint8Array, at: number, out: Float32Array, to: number) => void;

const UNPACK: Record<Exclude<GgmlType, 'F32' | 'F16' | 'BF16'>, Unpack> = {
  Q4_0: (bytes, at, out, to) => {
    const d = half(bytes, at);
    for (let i = 0; i < 16; i++) {
      const q = bytes[at + 2 + i];
      out[to + i] = d * ((q & 15) - 8);
      out[to + 16 + i] = d * ((q >> 4) - 8);
    }
  },
  Q4_1: (bytes, at, out, to) => {
    const [d, least] = [half(bytes, at), half(bytes, at + 2)];
    for (let i = 0; i < 16; i++) {
      const q = bytes[at + 4 + i];
      out[to + i] = d * (q & 15) + least;
      out[to + 16 + i] = d * (q >> 4) + least;
    }
  },
  Q5_0: (bytes, at, out, to) => {
    const [d, high] = [half(bytes, at), word(bytes, at + 2)];
    for (let i = 0; i < 16; i++) {
      const q = bytes[at + 6 + i];
      out[to + i] = d * (((q & 15) | (((high >>> i) & 1) << 4)) - 16);
      out[to + 16 + i] = d * (((q >> 4) | (((high >>> (i + 16)) & 1) << 4)) - 16);
    }
  },
  Q5_1: (bytes, at, out, to) => {
    const [d, least, high] = [half(bytes, at), half(bytes, at + 2), word(bytes, at + 4)];
    for (let i = 0; i < 16; i++) {
      const q = bytes[at + 8 + i];
      out[to + i] = d * ((q & 15) | (((high >>> i) & 1) << 4)) + least;
      out[to + 16 + i] = d * ((q >> 4) | (((high >>> (i + 16)) & 1) << 4)) + least;
    }
  },
  Q8_0: (bytes, at, out, to) => {
    const d = half(bytes, at);
    for (let i = 0; i < 32; i++) out[to + i] = d * signed(bytes[at + 2 + i]);
  },
  Q4_K: (bytes, at, out, to) => {
    const [d, least] = [half(bytes, at), half(bytes, at + 2)];
    for (let part = 0; part < 8; part++) {
      const [scale, offset] = sixBits(bytes, at + 4, part);
      const [quants, shift] = [at + 16 + 32 * (part >> 1), 4 * (part & 1)];
      for (let i = 0; i < 32; i++)
        out[to + 32 * part + i] = d * scale * ((bytes[quants + i] >> shift) & 15) - least * offset;
    }
  },
  Q5_K: (bytes, at, out, to) => {
    const [d, least] = [half(bytes, at), half(bytes, at + 2)];
    for (let part = 0; part < 8; part++) {
      const [scale, offset] = sixBits(bytes, at + 4, part);
      const [high, quants, shift] = [at + 16, at + 48 + 32 * (part >> 1), 4 * (part & 1)];
      for (let i = 0; i < 32; i++) {
        const q = ((bytes[quants + i] >> shift) & 15) | (((bytes[high + i] >> part) & 1) << 4);
        out[to + 32 * part + i] = d * scale * q - least * offset;
      }
    }
  },
  Q6_K: (bytes, at, out, to) => {
    const d = half(bytes, at + 208);
    for (let part = 0; part < 8; part++) {
      const [side, quarter] = [part >> 2, part & 3];
      const [low, high] = [at + 64 * side + 32 * (quarter & 1), at + 128 + 32 * side];
      const scales = at + 192 + 8 * side + 2 * quarter;
      for (let i = 0; i < 32; i++) {
        const four = (bytes[low + i] >> (4 * (quarter >> 1))) & 15;
        const two = (bytes[high + i] >> (2 * quarter)) & 3;
        out[to + 32 * part + i] = d * signed(bytes[scales + (i >> 4)]) * ((four | (two << 4)) - 32);
      }
    }
  },
};

/**
 * Returns scale and offset of one of the eight parts of a block of a K type, such as Q4_K. Each has six bits; the eight
 * pairs of a block share twelve bytes.
 */
function sixBits(bytes: Uint8Array, at: number, part: number): [scale: number, offset: number] {
  if (part < 4) return [bytes[at + part] & 63, bytes[at + part + 4] & 63];
  const low = bytes[at + part + 4];
  return [(low & 15) | ((bytes[at + part - 4] >> 6) << 4), (low >> 4) | ((bytes[at + part] >> 6) << 4)];
}

/**
 * GGUF types whose blocks a packed format of the GPU can hold without loss: 32 values of a row with a scale, without an
 * offset.
 */
export const PACKED_AS: Partial<Record<GgmlType, PackedFormat>> = { Q8_0: 'int8', Q4_0: 'int4' };

/**
 * Converts blocks of type Q8_0 (`format` 'int8') or Q4_0 ('int4') to the layout of kernels/pack.wgsl: the scale as
 * float32, then the integers in order.
 */
export function repackBlocks(format: PackedFormat, bytes: Uint8Array): Uint32Array {
  const width = format === 'int8' ? BLOCKS.Q8_0.bytes : BLOCKS.Q4_0.bytes;
  const words = packedBytes(format, PACKED_BLOCK) / 4;
  const out = new Uint32Array((bytes.length / width) * words);
  const scales = new Float32Array(out.buffer);
  for (let at = 0, to = 0; at < bytes.length; at += width, to += words) {
    scales[to] = half(bytes, at);
    for (let i = 0; i < PACKED_BLOCK; i++) {
      if (format === 'int8') out[to + 1 + (i >> 2)] |= (bytes[at + 2 + i] ^ 128) << (8 * (i & 3));
      else out[to + 1 + (i >> 3)] |= ((bytes[at + 2 + (i & 15)] >> (i < 16 ? 0 : 4)) & 15) << (4 * (i & 7));
    }
  }
  return out;
}

const signed = (byte: number): number => (byte << 24) >> 24;

const word = (bytes: Uint8Array, at: number): number =>
  bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);

/** Table of the float32 value of every float16. */
let halves: Float32Array | undefined;

function half(bytes: Uint8Array, at: number): number {
  halves ??= decodeTensor('F16', new Uint8Array(Uint16Array.from({ length: 65536 }, (_, bits) => bits).buffer));
  return halves[bytes[at] | (bytes[at + 1] << 8)];
}
