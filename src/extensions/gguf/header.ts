/**
 * Reads the header of a GGUF file. The file is untrusted: every count, length, type and offset is checked before it is used, so that the
 * cost of reading is limited by the size of the header. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */

import { InputError } from '../../errors.ts';
import { BLOCKS, type GgmlType, ggmlType, READ_TYPES } from './blocks.ts';

export type GgufValue = string | boolean | number | readonly GgufValue[];

/** Name, type, shape and byte range of a tensor in the file. */
export interface GgufTensorInfo {
  name: string;
  /** Shape in row-major order as in PyTorch; the last number is the length of a row. */
  shape: number[];
  type: GgmlType;
  /** Offset of the tensor's first byte in the file. */
  begin: number;
  bytes: number;
}

export interface GgufHeader {
  metadata: ReadonlyMap<string, GgufValue>;
  /** Tensors in the order of their bytes in the file. */
  tensors: readonly GgufTensorInfo[];
}

/** A file that is read in parts, with its length. */
export interface GgufFile {
  /** Name in errors. */
  name: string;
  size: number;
  read(begin: number, end: number): Promise<Uint8Array>;
}

/** Maximum bytes of a header. The largest vocabularies take about 20 MB. */
const MAX_HEADER_BYTES = 2 ** 26;
const FIRST_BYTES = 2 ** 20;
const MAX_TENSORS = 2 ** 16;
const MAX_KEYS = 2 ** 14;
const MAX_NAME_BYTES = 256;
/** Maximum bytes of a text. The longest one in a header is a complete tokenizer.json. */
const MAX_STRING_BYTES = 2 ** 25;
/** Maximum number of values in all lists together. A vocabulary has three lists, of at most 2^20 tokens each. */
const MAX_ITEMS = 2 ** 22;
const MAX_DEPTH = 2;
const MAX_DIMS = 4;
const MAX_ALIGNMENT = 2 ** 16;
const DEFAULT_ALIGNMENT = 32;

/**
 * Minimum bytes of a value for each type, by GGUF's id of the type. A string and a list have at least the bytes that
 * hold their length.
 */
const VALUE_BYTES = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8];
const [UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64] = VALUE_BYTES.keys();

/** Reads and checks the header. Throws InputError. */
export async function readGgufHeader(file: GgufFile): Promise<GgufHeader> {
  for (let bytes = FIRST_BYTES; ; bytes *= 4) {
    const wanted = Math.min(bytes, file.size, MAX_HEADER_BYTES);
    const prefix = await readExactly(file, 0, wanted);
    try {
      return new HeaderReader(prefix, file).header();
    } catch (error) {
      if (!(error instanceof Longer)) throw error;
    }
  }
}

/** Reads bytes begin..end. Throws InputError if the file has become shorter. */
export async function readExactly(file: GgufFile, begin: number, end: number): Promise<Uint8Array> {
  const bytes = await file.read(begin, end);
  if (bytes.length === end - begin) return bytes;
  throw new InputError(
    `${file.name} gave ${bytes.length} of ${end - begin} bytes at ${begin}. The file was truncated while it was read: try again.`,
  );
}

/** Thrown if the header is longer than the bytes read so far. */
class Longer extends Error {}

class HeaderReader {
  private at = 0;
  private items = 0;
  private readonly bytes: Uint8Array;
  private readonly view: DataView;
  private readonly file: GgufFile;

  constructor(bytes: Uint8Array, file: GgufFile) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.file = file;
  }

  header(): GgufHeader {
    this.checkStart();
    const [tensorCount, keyCount] = [this.count('tensors', MAX_TENSORS, 24), this.count('keys', MAX_KEYS, 13)];
    const metadata = new Map<string, GgufValue>();
    for (let k = 0; k < keyCount; k++) {
      const key = this.text('a key', MAX_NAME_BYTES);
      if (metadata.has(key)) this.refuse(`has the key ${shown(key)} twice; allowed is once`);
      metadata.set(key, this.value(this.u32(), key, 0));
    }
    const infos = Array.from({ length: tensorCount }, () => this.tensor());
    return { metadata, tensors: this.placed(infos, this.alignmentOf(metadata)) };
  }

  private checkStart(): void {
    const magic = this.take(4);
    if (String.fromCharCode(...this.bytes.subarray(magic, magic + 4)) !== 'GGUF')
      throw new InputError(
        `${this.file.name} does not begin with "GGUF". Give a GGUF file, or a folder in Hugging Face format.`,
      );
    const version = this.u32();
    if (version === 2 || version === 3) return;
    const isBigEndian = version % 65536 === 0 && version > 0;
    const found = isBigEndian ? 'is in big-endian byte order' : `has version ${version} of GGUF`;
    throw new InputError(
      `${this.file.name} ${found}; allowed are little-endian files of version 2 or 3. Convert the model again.`,
    );
  }

  private value(type: number, key: string, depth: number): GgufValue {
    const { view } = this;
    const at = type === STRING || type === ARRAY ? 0 : this.take(this.bytesOf(type, key));
    switch (type) {
      case UINT8:
        return view.getUint8(at);
      case INT8:
        return view.getInt8(at);
      case UINT16:
        return view.getUint16(at, true);
      case INT16:
        return view.getInt16(at, true);
      case UINT32:
        return view.getUint32(at, true);
      case INT32:
        return view.getInt32(at, true);
      case FLOAT32:
        return view.getFloat32(at, true);
      case BOOL: {
        const bit = view.getUint8(at);
        if (bit > 1) this.refuse(`has ${bit} for the truth of ${shown(key)}; allowed are 0 and 1`);
        return bit === 1;
      }
      case STRING:
        return this.text(`the value of ${shown(key)}`, MAX_STRING_BYTES);
      case ARRAY:
        return this.list(key, depth);
      case UINT64:
        return Number(view.getBigUint64(at, true));
      case INT64:
        return Number(view.getBigInt64(at, true));
      default:
        return view.getFloat64(at, true);
    }
  }

  private list(key: string, depth: number): GgufValue[] {
    if (depth >= MAX_DEPTH) this.refuse(`has lists ${depth + 1} deep in ${shown(key)}; allowed are ${MAX_DEPTH}`);
    const type = this.u32();
    const count = this.count(`items of ${shown(key)}`, MAX_ITEMS, this.bytesOf(type, key));
    this.items += count;
    if (this.items > MAX_ITEMS) this.refuse(`has ${this.items} items in its lists; allowed are ${MAX_ITEMS}`);
    const values: GgufValue[] = [];
    for (let i = 0; i < count; i++) values.push(this.value(type, key, depth + 1));
    return values;
  }

  private tensor(): Omit<GgufTensorInfo, 'begin'> & { offset: number } {
    const name = this.text('the name of a tensor', MAX_NAME_BYTES);
    const what = `tensor ${shown(name)}`;
    const dims = this.u32();
    if (dims < 1 || dims > MAX_DIMS) this.refuse(`has ${dims} sizes for the ${what}; allowed are 1 to ${MAX_DIMS}`);
    const sizes = Array.from({ length: dims }, () => this.u64());
    const number = this.u32();
    const offset = this.u64();
    const type = ggmlType(number);
    if (!type) {
      throw new InputError(
        `${this.file.name}: the ${what} has ggml type ${number}; allowed are ${READ_TYPES.join(', ')}. Choose a file of these.`,
      );
    }
    const elements = sizes.reduce((product, size) => product * size, 1);
    const { values, bytes } = BLOCKS[type];
    if (sizes.includes(0) || !Number.isSafeInteger(elements * bytes))
      this.refuse(
        `has the sizes [${sizes.join(', ')}] for the ${what}; allowed are sizes from 1 on that a file can hold`,
      );
    if (sizes[0] % values !== 0)
      this.refuse(`has rows of ${sizes[0]} for the ${what}; allowed for ${type} are multiples of ${values}`);
    return { name, shape: sizes.toReversed(), type, offset, bytes: (elements / values) * bytes };
  }

  private alignmentOf(metadata: ReadonlyMap<string, GgufValue>): number {
    const alignment = metadata.get('general.alignment') ?? DEFAULT_ALIGNMENT;
    const isOne = typeof alignment === 'number' && alignment >= 8 && alignment <= MAX_ALIGNMENT;
    if (isOne && Number.isInteger(Math.log2(alignment))) return alignment;
    return this.refuse(
      `has the general.alignment ${shown(alignment)}; allowed are powers of two from 8 to ${MAX_ALIGNMENT}`,
    );
  }

  /**
   * Reads the table of tensors. Their byte ranges must follow one another and fill the file, without an overlap, a gap or bytes after the
   * end.
   */
  private placed(infos: ReturnType<HeaderReader['tensor']>[], alignment: number): GgufTensorInfo[] {
    const aligned = (bytes: number) => Math.ceil(bytes / alignment) * alignment;
    const start = aligned(this.at);
    const names = new Set<string>();
    let end = 0;
    const placed = infos
      .toSorted((a, b) => a.offset - b.offset)
      .map(({ offset, ...info }): GgufTensorInfo => {
        const what = `tensor ${shown(info.name)}`;
        if (names.has(info.name)) this.refuse(`has the ${what} twice; allowed is once`);
        names.add(info.name);
        if (offset !== aligned(end))
          this.refuse(
            `has the ${what} at byte ${offset} of its data; allowed is ${aligned(end)}, behind the one before`,
          );
        end = offset + info.bytes;
        return { ...info, begin: start + offset };
      });
    const { name, size } = this.file;
    if (start + end > size)
      throw new InputError(
        `${name} has ${size} bytes, but its tensors need ${start + end}. The file is truncated: download it again.`,
      );
    if (size > aligned(start + end))
      this.refuse(`has ${size - start - end} bytes after its last tensor; allowed is less than ${alignment}`);
    return placed;
  }

  /** Reads a count of items that take at least `each` bytes. Throws InputError if the file is too short for so many. */
  private count(what: string, most: number, each: number): number {
    const count = this.u64();
    const fit = Math.min(most, Math.floor((this.file.size - this.at) / each));
    if (count > fit) this.refuse(`has ${count} ${what}; allowed are ${fit} in a file of this size`);
    return count;
  }

  private text(what: string, most: number): string {
    const length = this.u64();
    const fit = Math.min(most, this.file.size - this.at);
    if (length > fit) this.refuse(`has ${length} bytes for ${what}; allowed are ${fit} in a file of this size`);
    const at = this.take(length);
    try {
      return UTF8.decode(this.bytes.subarray(at, at + length));
    } catch {
      return this.refuse(`has ${what} at byte ${at}, which is not UTF-8; allowed is UTF-8`);
    }
  }

  private bytesOf(type: number, key: string): number {
    return VALUE_BYTES[type] ?? this.refuse(`has a value of type ${type} for ${shown(key)}; allowed are 0 to 12`);
  }

  private u32(): number {
    return this.view.getUint32(this.take(4), true);
  }

  /**
   * Reads a 64-bit integer. Numbers above 2^53 are rounded, which does no harm because every limit in this file refuses
   * them.
   */
  private u64(): number {
    return Number(this.view.getBigUint64(this.take(8), true));
  }

  /**
   * Returns the offset of the next `count` bytes and moves past them. Throws Longer if these bytes have not been read
   * from the file yet.
   */
  private take(count: number): number {
    const at = this.at;
    if (at + count > this.bytes.length) {
      const { name, size } = this.file;
      if (at + count > size)
        throw new InputError(
          `${name} has ${size} bytes, but its header is longer. The file is truncated: download it again.`,
        );
      if (this.bytes.length >= MAX_HEADER_BYTES)
        this.refuse(`has a header of over ${MAX_HEADER_BYTES} bytes; allowed are fewer`);
      throw new Longer();
    }
    this.at += count;
    return at;
  }

  private refuse(what: string): never {
    throw new InputError(
      `${this.file.name} ${what}. The file is damaged: download it again, or convert the model again.`,
    );
  }
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Truncates a value from the file to fit into an error message. */
export const shown = (value: unknown): string => (JSON.stringify(value) ?? 'absent').slice(0, 80);
