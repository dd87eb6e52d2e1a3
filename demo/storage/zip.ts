/** Writes a folder as one .zip, without compression because weights do not shrink. Reads archives with or without compression (deflate). */

import { concat } from '../../src/concat.ts';
import { InputError } from '../../src/errors.ts';
import type { FolderFiles } from '../../src/runs/fileSystem.ts';

const LOCAL = 0x04034b50;
const CENTRAL = 0x02014b50;
const END = 0x06054b50;
const [LOCAL_BYTES, CENTRAL_BYTES, END_BYTES] = [30, 46, 22];
const UTF8 = 0x0800;
const [STORED, DEFLATED] = [0, 8];
/** 1 January 1980, the first date that a .zip can store. The date is fixed, so that the same files always result in the same bytes. */
const DATE = 0x21;
/** Maximum size of the comment that can follow the end record of a .zip. */
const COMMENT_BYTES = 65_535;

/** Writes a .zip of these files by path, all of them inside one folder. */
export function writeZip(folder: string, files: FolderFiles): Uint8Array<ArrayBuffer> {
  const entries: Uint8Array[] = [];
  const directory: Uint8Array[] = [];
  let at = 0;
  for (const [path, content] of files) {
    const name = new TextEncoder().encode(`${folder}/${path}`);
    const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
    const about = [...u16(20, UTF8, STORED, 0, DATE), ...u32(crc32(bytes), bytes.length, bytes.length, name.length)];
    entries.push(Uint8Array.from([...u32(LOCAL), ...about]), name, bytes);
    directory.push(Uint8Array.from([...u32(CENTRAL), ...u16(20), ...about, ...u32(0, 0), ...u16(0), ...u32(at)]), name);
    at += LOCAL_BYTES + name.length + bytes.length;
  }
  const bytes = directory.reduce((sum, { length }) => sum + length, 0);
  const end = Uint8Array.from([...u32(END, 0), ...u16(files.size, files.size), ...u32(bytes, at), ...u16(0)]);
  return concat(Uint8Array, [...entries, ...directory, end]);
}

/** Returns numbers as little-endian bytes: two bytes per number (u16), or four (u32). */
const u16 = (...values: number[]): number[] => values.flatMap((value) => [value, value >>> 8]);
const u32 = (...values: number[]): number[] => values.flatMap((value) => [...u16(value), ...u16(value >>> 16)]);

/**
 * Reads the files of a .zip, by path. Throws InputError if the .zip is invalid, damaged or packed in an unsupported way.
 * @param name name of the .zip in errors
 */
export async function readZip(zip: Uint8Array, name: string): Promise<Map<string, Uint8Array>> {
  const view = new DataView(zip.buffer, zip.byteOffset, zip.byteLength);
  const damaged = (what: string) => new InputError(`${name} cannot be read as a .zip: ${what}.`);
  try {
    let end = zip.length - END_BYTES;
    while (end >= 0 && view.getUint32(end, true) !== END) {
      if (zip.length - end > END_BYTES + COMMENT_BYTES) break;
      end--;
    }
    if (end < 0 || view.getUint32(end, true) !== END) throw damaged('it has no directory at its end');
    const files = new Map<string, Uint8Array>();
    let at = view.getUint32(end + 16, true);
    for (let count = view.getUint16(end + 10, true); count > 0; count--) {
      if (view.getUint32(at, true) !== CENTRAL) throw damaged('its directory is damaged');
      const [nameBytes, extra, comment] = [28, 30, 32].map((field) => view.getUint16(at + field, true));
      const path = new TextDecoder().decode(zip.subarray(at + CENTRAL_BYTES, at + CENTRAL_BYTES + nameBytes));
      if (!path.endsWith('/')) files.set(path, await entryAt(zip, view, at, (what) => damaged(`${path} ${what}`)));
      at += CENTRAL_BYTES + nameBytes + extra + comment;
    }
    return files;
  } catch (error) {
    if (error instanceof RangeError) throw damaged('it is cut short');
    throw error;
  }
}

/** Reads the file that a record of the .zip's directory describes. */
async function entryAt(
  zip: Uint8Array,
  view: DataView,
  line: number,
  damaged: (what: string) => InputError,
): Promise<Uint8Array> {
  const [method, crc] = [view.getUint16(line + 10, true), view.getUint32(line + 16, true)];
  const [packed, size, local] = [20, 24, 42].map((field) => view.getUint32(line + field, true));
  if (method !== STORED && method !== DEFLATED) throw damaged(`is packed by method ${method}. Use plain zip`);
  const begin = local + LOCAL_BYTES + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  const content = zip.subarray(begin, begin + packed);
  const bytes = method === STORED ? content : await inflate(content, size).catch(() => undefined);
  if (bytes?.length !== size || crc32(bytes) !== crc) throw damaged('is damaged');
  return bytes;
}

/** Decompresses at most `size` bytes. Undefined if there are more. A small .zip could otherwise fill the memory. */
async function inflate(packed: Uint8Array, size: number): Promise<Uint8Array | undefined> {
  const unpacked = new Blob([packed as Uint8Array<ArrayBuffer>])
    .stream()
    .pipeThrough(new DecompressionStream('deflate-raw'));
  const bytes = new Uint8Array(size);
  let at = 0;
  for await (const piece of unpacked as unknown as AsyncIterable<Uint8Array>) {
    if (at + piece.length > size) return undefined;
    bytes.set(piece, at);
    at += piece.length;
  }
  return at === size ? bytes : undefined;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}
