/**
 * Reads and writes safetensors files of named one-dimensional arrays ("columns") that are not weights. The metadata has a SHA-256 of the
 * file. Values are read back bit for bit.
 */

import { InputError } from '../../errors.ts';
import { joinSafetensors, readSafetensorsHeader } from '../../model/checkpoint/safetensors.ts';

const TYPES = {
  F64: Float64Array,
  U32: Uint32Array,
  F32: Float32Array,
  U16: Uint16Array,
  U8: Uint8Array,
} as const;
type Dtype = keyof typeof TYPES;
export type Column = Float64Array | Uint32Array | Float32Array | Uint16Array | Uint8Array;
export type Columns = Map<string, Column>;

const WIDTHS = Object.fromEntries(Object.entries(TYPES).map(([dtype, { BYTES_PER_ELEMENT: width }]) => [dtype, width]));

/** Stands in the file for the SHA-256 while the hash is computed. */
const NO_HASH = '0'.repeat(64);

/** Returns the bytes of a safetensors file with these columns. Columns of wider types come first, so that every column is aligned. */
export async function writeColumns(
  columns: Columns,
  metadata: Record<string, string>,
): Promise<Uint8Array<ArrayBuffer>> {
  const parts = Array.from(columns, ([name, data]) => ({
    name,
    dtype: dtypeOf(data),
    shape: [data.length],
    length: data.byteLength,
    bytes: () => new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
  }));
  parts.sort((a, b) => WIDTHS[b.dtype] - WIDTHS[a.dtype]);
  const file = joinSafetensors(parts, { ...metadata, sha256: NO_HASH });
  const hash = new TextEncoder().encode(await sha256(file));
  file.set(hash, placeOf(file, NO_HASH));
  return file;
}

/** Reads a file of `writeColumns`. Throws InputError that names `file` if the file is invalid, or was changed after it was written. */
export async function readColumns(
  bytes: Uint8Array,
  file: string,
): Promise<{ columns: Columns; metadata: Record<string, string> }> {
  const { entries, metadata } = readSafetensorsHeader<Dtype>(bytes, bytes.length, file, WIDTHS);
  const { sha256: told, ...rest } = (metadata as typeof metadata | null) ?? {};
  const place = typeof told === 'string' && told.length === NO_HASH.length ? placeOf(bytes, told) : -1;
  if (place < 0)
    throw new InputError(`${file} has no SHA-256 of its content: it was not written by webgrpo, or is damaged.`);
  const whole = new Uint8Array(bytes); // slice() on a Buffer of Node would share its bytes
  whole.set(new TextEncoder().encode(NO_HASH), place);
  if ((await sha256(whole)) !== told)
    throw new InputError(`${file} has changed since it was written (SHA-256): it is damaged. Use another copy of it.`);
  const columns = entries.map(({ name, dtype, begin, end }): [string, Column] => {
    const copy = whole.slice(begin, end).buffer; // a copy is aligned; the file's bytes need not be
    return [name, new TYPES[dtype](copy)];
  });
  return { columns: new Map(columns), metadata: rest };
}

const dtypeOf = (data: Column): Dtype => (Object.keys(TYPES) as Dtype[]).find((dtype) => data instanceof TYPES[dtype])!;

/** Returns the byte offset of the hash in the file; -1 if the file's header does not contain this hash. */
function placeOf(file: Uint8Array, hash: string): number {
  const header = 8 + Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const key = '"sha256":"';
  const text = new TextDecoder('latin1').decode(file.subarray(8, header)); // one byte per character
  const at = text.indexOf(`${key}${hash}"`);
  return at < 0 ? -1 : 8 + at + key.length;
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
