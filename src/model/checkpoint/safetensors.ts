/**
 * The safetensors format: the length of the header (8 bytes, little endian), then the JSON header, then the tensors'
 * bytes. The header is parsed separately from the data, so that a large file can be streamed tensor by tensor.
 */

import type { TensorMap } from '../engine.ts';
import { InputError } from '../../errors.ts';
import { elementCount } from '../params.ts';

export type SafetensorsDtype = 'F32' | 'F16' | 'BF16';

export interface SafetensorsEntry<D extends string = SafetensorsDtype> {
  name: string;
  dtype: D;
  shape: number[];
  /** Byte range of the tensor, counted from the start of the file and not of the data section. */
  begin: number;
  end: number;
}

interface SafetensorsHeader<D extends string> {
  /** Ascending by `begin`. */
  entries: SafetensorsEntry<D>[];
  metadata: Record<string, string>;
}

/** Maximum number of dimensions: more than any tensor of a model has. */
const MAX_DIMS = 8;

const BYTES_PER_ELEMENT: Record<SafetensorsDtype, number> = { F32: 4, F16: 2, BF16: 2 };

/**
 * Maximum bytes of a header, enough for a hundred thousand tensors. The format's own library allows six times as much,
 * which takes too long to read.
 */
export const MAX_HEADER_BYTES = 2 ** 24;

/** Reads a complete file; returns every tensor as float32. Errors name `file`. */
export function readSafetensors(bytes: Uint8Array, file = 'model.safetensors'): TensorMap {
  const { entries } = readSafetensorsHeader(bytes, bytes.length, file);
  const tensors: TensorMap = new Map();
  for (const entry of entries) {
    const data = decodeTensor(entry.dtype, bytes.subarray(entry.begin, entry.end));
    tensors.set(entry.name, { shape: entry.shape, data });
  }
  return tensors;
}

/**
 * Number of bytes from the start of the file that `readSafetensorsHeader` needs. `prefix` must hold at least the first
 * 8 bytes.
 */
export function safetensorsHeaderBytes(prefix: Uint8Array, fileLength: number, file: string): number {
  if (prefix.length < 8 || fileLength < 8) {
    throw new InputError(`${file} is truncated: it has ${fileLength} bytes, but its header length alone takes 8.`);
  }
  const length = new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) {
    throw new InputError(
      `${file} claims a header of ${length} bytes. At most ${MAX_HEADER_BYTES} are allowed. Is this a safetensors file?`,
    );
  }
  if (8 + Number(length) > fileLength) {
    throw new InputError(
      `${file} claims a header of ${length} bytes, but only ${fileLength - 8} follow. The file is truncated or corrupt.`,
    );
  }
  return 8 + Number(length);
}

/**
 * Reads and checks the header. `prefix` is the start of the file with the complete header, `fileLength` the size of the
 * file.
 * @param widths bytes per element of each allowed dtype; default: the dtypes of weights
 */
export function readSafetensorsHeader<D extends string = SafetensorsDtype>(
  prefix: Uint8Array,
  fileLength: number,
  file = 'model.safetensors',
  widths: Readonly<Record<string, number>> = BYTES_PER_ELEMENT,
): SafetensorsHeader<D> {
  const dataStart = safetensorsHeaderBytes(prefix, fileLength, file);
  const text = decodeText(prefix.subarray(8, dataStart), file);
  const json = parseHeaderJson(text, file);
  const twice = firstDuplicateKey(text);
  if (twice !== undefined) throw new InputError(`${file} lists the tensor "${twice}" twice in its header.`);
  const { __metadata__: metadata = {}, ...tensors } = json;
  const entries = Object.entries(tensors).map(([name, value]) => readEntry<D>(name, value, dataStart, file, widths));
  entries.sort((a, b) => a.begin - b.begin || a.end - b.end);
  checkOffsets(entries, dataStart, fileLength, file);
  return { entries, metadata: metadata as Record<string, string> };
}

/**
 * Writes tensors in the order of the map, rounded to nearest even if `dtype` is a half. Throws InputError if data and
 * shape disagree, or a value is beyond float16.
 */
export function writeSafetensors(
  tensors: TensorMap,
  metadata: Record<string, string> = { format: 'pt' },
  dtype: SafetensorsDtype = 'F32',
): Uint8Array<ArrayBuffer> {
  const parts = Array.from(tensors, ([name, { shape, data }]): SafetensorsPart => {
    if (elementCount(shape) !== data.length) {
      throw new InputError(`Tensor "${name}" has shape [${shape.join(', ')}] but ${data.length} values.`);
    }
    const length = data.length * BYTES_PER_ELEMENT[dtype];
    return { name, dtype, shape, length, bytes: () => encodeTensor(dtype, data, name) };
  });
  return joinSafetensors(parts, metadata);
}

/** A tensor to write. `length` is in bytes; the bytes themselves are requested when they are written. */
export interface SafetensorsPart {
  name: string;
  dtype: string;
  shape: number[];
  length: number;
  bytes(): Uint8Array;
}

/** Returns a file with these tensors, in their order. */
export function joinSafetensors(
  parts: readonly SafetensorsPart[],
  metadata: Record<string, string>,
): Uint8Array<ArrayBuffer> {
  const header: Record<string, unknown> = { __metadata__: metadata };
  let offset = 0;
  for (const { name, dtype, shape, length } of parts) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + length] };
    offset += length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const headerLength = Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(8 + headerLength + offset).fill(0x20, 8, 8 + headerLength);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(headerLength), true);
  bytes.set(text, 8);
  let position = 8 + headerLength;
  for (const part of parts) {
    bytes.set(part.bytes(), position);
    position += part.length;
  }
  return bytes;
}

/** Converts one tensor's bytes (little endian, any alignment) to float32; float16 and bfloat16 convert exactly. */
export function decodeTensor(dtype: SafetensorsDtype, bytes: Uint8Array): Float32Array {
  const copy = new Uint8Array(bytes).buffer; // a copy is aligned; the file's bytes need not be
  if (dtype === 'F32') return new Float32Array(copy);
  const halves = new Uint16Array(copy);
  const bits = new Uint32Array(halves.length);
  if (dtype === 'BF16') for (let i = 0; i < halves.length; i++) bits[i] = halves[i] << 16;
  else for (let i = 0; i < halves.length; i++) bits[i] = float16ToFloat32Bits(halves[i]);
  return new Float32Array(bits.buffer);
}

/** Inverse of `decodeTensor`. Throws InputError that names the tensor if float16 cannot hold a finite value. */
export function encodeTensor(dtype: SafetensorsDtype, data: Float32Array, name: string): Uint8Array {
  if (dtype === 'F32') return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
  const toHalf = dtype === 'BF16' ? float32BitsToBfloat16 : float32BitsToFloat16;
  const halves = new Uint16Array(data.length);
  for (let i = 0; i < halves.length; i++) halves[i] = toHalf(bits[i]);
  const infinite = dtype === 'BF16' ? 0x7f80 : 0x7c00;
  const lost = halves.findIndex((half, i) => (half & 0x7fff) === infinite && Number.isFinite(data[i]));
  if (lost < 0) return new Uint8Array(halves.buffer);
  throw new InputError(`Tensor "${name}" holds ${data[lost]}, which ${dtype} cannot hold. Save it as F32.`);
}

/** Converts a float32 to the bits of a bfloat16. Rounds to nearest, ties to even; NaN stays NaN. */
function float32BitsToBfloat16(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Converts a float32 to the bits of a float16. Rounds to nearest, ties to even; NaN stays NaN. */
function float32BitsToFloat16(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and above round to infinity
  // The smallest normal float16 is 2^-14. Below that, the implicit leading bit becomes explicit and the fraction is
  // shifted out.
  if (magnitude >= 0x38800000) return sign | roundShift(magnitude - 0x38000000, 13);
  if (magnitude < 0x33000000) return sign; // below half of the smallest denormal
  const shift = 126 - (magnitude >>> 23);
  return sign | roundShift((magnitude & 0x7fffff) | 0x800000, shift);
}

/** Returns value / 2^shift, rounded to nearest, ties to even; shift is 1 to 24. */
function roundShift(value: number, shift: number): number {
  const kept = value >>> shift;
  const rest = value & ((1 << shift) - 1);
  const half = 1 << (shift - 1);
  return kept + (rest > half || (rest === half && (kept & 1) === 1) ? 1 : 0);
}

function float16ToFloat32Bits(half: number): number {
  const sign = (half & 0x8000) << 16;
  const exponent = (half >> 10) & 31;
  const fraction = half & 0x3ff;
  if (exponent === 31) return sign | 0x7f800000 | (fraction << 13);
  if (exponent > 0) return sign | ((exponent + 112) << 23) | (fraction << 13);
  if (fraction === 0) return sign;
  // A denormal float16 is a normal float32: its leading bit becomes the implicit one.
  const shift = Math.clz32(fraction) - 21;
  return sign | ((113 - shift) << 23) | (((fraction << shift) & 0x3ff) << 13);
}

function decodeText(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new InputError(`${file} has a header that is not UTF-8. The file is corrupt.`, { cause });
  }
}

function parseHeaderJson(text: string, file: string): Record<string, unknown> {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new InputError(`${file} has a header that is not JSON (${reason}). Its length may be wrong.`, { cause });
  }
  if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as Record<string, unknown>;
  throw new InputError(`${file} has a header that is not a JSON object.`);
}

/** JSON.parse silently keeps the last of equal keys, so the text itself is scanned: strings before ":" at depth 1. */
function firstDuplicateKey(text: string): string | undefined {
  const seen = new Set<string>();
  let depth = 0;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}[\]]/g)) {
    if (token === '{' || token === '[') depth++;
    else if (token === '}' || token === ']') depth--;
    else if (depth === 1 && token.endsWith(':')) {
      const key = JSON.parse(token.slice(0, -1)) as string;
      if (seen.has(key)) return key;
      seen.add(key);
    }
  }
  return undefined;
}

function readEntry<D extends string>(
  name: string,
  value: unknown,
  dataStart: number,
  file: string,
  widths: Readonly<Record<string, number>>,
): SafetensorsEntry<D> {
  const { dtype, shape, data_offsets: offsets } = (value ?? {}) as Record<string, unknown>;
  if (typeof dtype !== 'string' || !Object.hasOwn(widths, dtype)) {
    const supported = Object.keys(widths).join(', ');
    throw new InputError(`${file}: tensor "${name}" has dtype ${show(dtype)}; supported: ${supported}.`);
  }
  if (!isCounts(shape) || shape.length > MAX_DIMS) {
    throw new InputError(
      `${file}: tensor "${name}" has shape ${show(shape)}, not a list of at most ${MAX_DIMS} sizes.`,
    );
  }
  if (!isCounts(offsets) || offsets.length !== 2 || offsets[0] > offsets[1]) {
    throw new InputError(`${file}: tensor "${name}" has data_offsets ${show(offsets)}, not [begin, end].`);
  }
  const bytes = elementCount(shape) * widths[dtype];
  if (bytes !== offsets[1] - offsets[0]) {
    throw new InputError(
      `${file}: tensor "${name}" ${dtype} [${shape.join(', ')}] needs ${bytes} bytes, but its offsets ` +
        `[${offsets.join(', ')}] hold ${offsets[1] - offsets[0]}.`,
    );
  }
  const [begin, end] = offsets.map((offset) => dataStart + offset);
  return { name, dtype: dtype as D, shape, begin, end };
}

/**
 * Throws unless tensors cover the data section exactly, as the format requires: no overlap, no hole, no bytes after the
 * end.
 */
function checkOffsets(entries: SafetensorsEntry<string>[], dataStart: number, fileLength: number, file: string): void {
  let end = dataStart;
  let previous = 'the header';
  for (const entry of entries) {
    if (entry.begin !== end) {
      const relation = entry.begin < end ? 'overlaps' : 'leaves a hole after';
      throw new InputError(
        `${file}: tensor "${entry.name}" ${relation} ${previous}: it begins at data offset ` +
          `${entry.begin - dataStart}, not ${end - dataStart}. The file is corrupt.`,
      );
    }
    end = entry.end;
    previous = `"${entry.name}"`;
  }
  if (end === fileLength) return;
  throw new InputError(
    end > fileLength
      ? `${file} is truncated: its header promises ${end} bytes, but it has ${fileLength}. Download it again.`
      : `${file} has ${fileLength - end} bytes after its last tensor. The file is corrupt.`,
  );
}

/** Truncates a value from the header to fit into an error message. */
const show = (value: unknown) => (JSON.stringify(value) ?? 'none').slice(0, 80);

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((v) => Number.isSafeInteger(v) && (v as number) >= 0);
}
