/**
 * Writes GGUF files, version 3 of the format, little-endian: magic, version, counts, metadata, tensor table, then the data of each tensor
 * at an offset that is a multiple of 32 bytes. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */

import { InputError } from '../../errors.ts';
import { elementCount } from '../../model/params.ts';
import { encodeTensor } from '../../model/checkpoint/safetensors.ts';

export type GgufType = 'F32' | 'F16' | 'Q8_0';

/** A value of the metadata. A number is written as uint32, `{ float }` as float32. */
export type GgufValue =
  | string
  | boolean
  | number
  | { float: number }
  | readonly string[]
  | { int32: readonly number[] };

export interface GgufTensor {
  name: string;
  /** Row-major shape; the last number is the length of a row. */
  shape: readonly number[];
  type: GgufType;
  data: Float32Array;
}

/** ggml's ids of the tensor types. The next line has GGUF's ids of the types of metadata values. */
const TENSOR_TYPES: Record<GgufType, number> = { F32: 0, F16: 1, Q8_0: 8 };
const [UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY] = [4, 5, 6, 7, 8, 9];
const ALIGNMENT = 32;
/** Number of values in a Q8_0 block, which have one scale. */
export const Q8_BLOCK = 32;

/** Returns the bytes of a complete GGUF file. Throws InputError if a tensor cannot be stored in its type. */
export function writeGguf(
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: readonly GgufTensor[],
): Uint8Array<ArrayBuffer> {
  const encoded = tensors.map(encode);
  const head = new Bytes();
  head.raw(new TextEncoder().encode('GGUF'));
  head.u32(3);
  head.u64(tensors.length);
  head.u64(metadata.size);
  for (const [key, value] of metadata) {
    head.string(key);
    head.value(value);
  }
  let offset = 0;
  for (const [i, { name, shape, type }] of tensors.entries()) {
    head.string(name);
    head.u32(shape.length);
    for (const size of shape.toReversed()) head.u64(size);
    head.u32(TENSOR_TYPES[type]);
    head.u64(offset);
    offset += aligned(encoded[i].length);
  }
  const start = aligned(head.length);
  const file = new Uint8Array(start + offset);
  head.copyTo(file);
  let at = start;
  for (const bytes of encoded) {
    file.set(bytes, at);
    at += aligned(bytes.length);
  }
  return file;
}

const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

function encode({ name, shape, type, data }: GgufTensor): Uint8Array {
  if (elementCount([...shape]) !== data.length)
    throw new InputError(`Tensor "${name}" has shape [${shape.join(', ')}] but ${data.length} values.`);
  if (type !== 'Q8_0') return encodeTensor(type, data, name);
  if (shape[shape.length - 1] % Q8_BLOCK === 0) return encodeQ8(data, name);
  throw new InputError(
    `Tensor "${name}" has rows of ${shape[shape.length - 1]}; Q8_0 needs a multiple of ${Q8_BLOCK}.`,
  );
}

/**
 * Converts values to Q8_0 blocks of 32: a float16 scale (largest magnitude / 127), then a signed byte per value, rounded to nearest, with
 * halves away from zero.
 */
function encodeQ8(data: Float32Array, name: string): Uint8Array {
  const blocks = data.length / Q8_BLOCK;
  const scales = Float32Array.from({ length: blocks }, (_, b) => {
    const block = data.subarray(b * Q8_BLOCK, (b + 1) * Q8_BLOCK);
    return block.reduce((most, x) => Math.max(most, Math.abs(x)), 0) / 127;
  });
  const halves = encodeTensor('F16', scales, name);
  const bytes = new Uint8Array(blocks * (2 + Q8_BLOCK));
  const quantized = new Int8Array(bytes.buffer);
  for (let b = 0; b < blocks; b++) {
    const at = b * (2 + Q8_BLOCK);
    bytes.set(halves.subarray(2 * b, 2 * b + 2), at);
    const inverse = scales[b] === 0 ? 0 : 1 / scales[b];
    for (let i = 0; i < Q8_BLOCK; i++) {
      const x = data[b * Q8_BLOCK + i] * inverse;
      quantized[at + 2 + i] = Math.sign(x) * Math.round(Math.abs(x));
    }
  }
  return bytes;
}

/** A byte buffer that grows when needed. */
class Bytes {
  #bytes = new Uint8Array(1 << 16);
  length = 0;

  copyTo(file: Uint8Array): void {
    file.set(this.#bytes.subarray(0, this.length));
  }

  raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.length);
    this.length += bytes.length;
  }

  u32(value: number): void {
    this.#view(4).setUint32(0, value, true);
  }

  u64(value: number): void {
    this.#view(8).setBigUint64(0, BigInt(value), true);
  }

  string(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.u64(bytes.length);
    this.raw(bytes);
  }

  value(value: GgufValue): void {
    if (typeof value === 'string') {
      this.u32(STRING);
      this.string(value);
    } else if (typeof value === 'boolean') {
      this.u32(BOOL);
      this.#view(1).setUint8(0, Number(value));
    } else if (typeof value === 'number') {
      this.u32(UINT32);
      this.u32(value);
    } else if ('float' in value) {
      this.u32(FLOAT32);
      this.#view(4).setFloat32(0, value.float, true);
    } else {
      const items = 'int32' in value ? value.int32 : value;
      this.u32(ARRAY);
      this.u32('int32' in value ? INT32 : STRING);
      this.u64(items.length);
      for (const item of items) {
        if (typeof item === 'string') this.string(item);
        else this.#view(4).setInt32(0, item, true);
      }
    }
  }

  /** Appends `bytes` bytes and returns a view of them for the caller to fill. */
  #view(bytes: number): DataView {
    this.#room(bytes);
    this.length += bytes;
    return new DataView(this.#bytes.buffer, this.length - bytes, bytes);
  }

  #room(bytes: number): void {
    if (this.length + bytes <= this.#bytes.length) return;
    const larger = new Uint8Array(2 * (this.length + bytes));
    larger.set(this.#bytes);
    this.#bytes = larger;
  }
}
