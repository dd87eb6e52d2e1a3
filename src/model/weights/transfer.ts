/**
 * Copies tensors by Hugging Face (or PEFT) name to and from the blocks of an arena: transposes, splits, converts and
 * packs them.
 */

import type { Gpu } from '../../gpu/device.ts';
import { cast } from '../../gpu/ops/cast.ts';
import type { pack } from '../../gpu/ops/pack.ts';
import { PACKED_BLOCK, packedBytes, type PackedFormat } from '../../gpu/packedFormat.ts';
import type { View } from '../../gpu/view.ts';
import { InputError } from '../../errors.ts';
import type { WeightPiece, WeightSource } from '../checkpoint/open.ts';
import type { TensorMap } from '../engine.ts';
import type { Float32Scratch } from './float32Scratch.ts';
import type { Block, TensorPart } from './plan.ts';

/** Fields of an arena that an import or export needs. */
interface Blocks {
  readonly gpu: Gpu;
  readonly blocks: readonly Block[];
  /** Complete buffers. */
  readonly buffers: readonly View[];
  readonly scratch: Float32Scratch;
  readonly packing?: { pack: typeof pack } | undefined;
  /** Returns the block with a label. */
  view(label: string): View;
  /** Returns a block's values as float32; records the conversion if the block has another format. */
  float32(view: View): View;
}

/** Maximum number of bytes that are read back from the device at a time. */
export const EXPORT_PIECE_BYTES = 32 << 20;

/** Number of bytes that are written to the device before it is awaited. */
const PENDING_BYTES = 16 << 20;

/** Copies host tensors to the device. Throws InputError that names a tensor if it is missing or has another shape. */
export function importTensors(arena: Blocks, tensors: TensorMap): void {
  const writer = new BlockWriter(arena);
  for (const block of arena.blocks) {
    const host = new Float32Array(block.size);
    for (const part of block.parts) copyPart(block, part, host, findTensor(tensors, part).data, 'in');
    writer.write(block, host);
  }
  writer.close();
  arena.scratch.release();
}

/**
 * Copies weights to the device piece by piece, so that host memory holds only a few pieces. Throws InputError if a
 * tensor is missing or has another shape.
 */
export async function importFrom(arena: Blocks, source: WeightSource): Promise<void> {
  const writer = new BlockWriter(arena);
  let pending = 0;
  for await (const piece of source.pieces()) {
    await writer.writePiece(piece);
    // The device is awaited, because it holds a copy of written data until the write has been executed.
    if ((pending += piece.data.byteLength) < PENDING_BYTES) continue;
    await arena.gpu.idle();
    pending = 0;
  }
  writer.close();
  await arena.gpu.idle();
  arena.scratch.release();
}

/** Copies tensors to the host. */
export async function exportTensors(arena: Blocks): Promise<TensorMap> {
  const tensors: TensorMap = new Map();
  for (const [i, buffer] of arena.buffers.entries()) {
    const all = await readBuffer(arena.gpu, buffer);
    for (const block of arena.blocks.filter((candidate) => candidate.buffer === i)) {
      const host =
        (await convertedValues(arena, block)) ?? all.subarray(block.offset / 4, block.offset / 4 + block.size);
      for (const part of block.parts) {
        const { name, shape } = part;
        if (!tensors.has(name)) tensors.set(name, { shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) });
        copyPart(block, part, host, tensors.get(name)!.data, 'out');
      }
    }
  }
  arena.scratch.release();
  return tensors;
}

/**
 * Writes blocks as their parts arrive. A packed or transposed 16-bit block is collected as float32 in the scratch
 * buffer and converted when its last part has arrived. The parts of one block must arrive one after another.
 */
class BlockWriter {
  readonly #arena: Blocks;
  /** Block that is being collected in the scratch buffer. */
  #open: Block | undefined;

  constructor(arena: Blocks) {
    this.#arena = arena;
  }

  /** Writes a complete block. */
  write(block: Block, values: Float32Array): void {
    if (block.format === 'half') return this.#castIn(block, values, 0);
    const { view, start } = this.#target(block);
    this.#arena.gpu.write(view, values, start);
  }

  async writePiece(piece: WeightPiece): Promise<void> {
    const homes = this.#arena.blocks.flatMap((block) =>
      block.parts.flatMap((part) => (part.name === piece.name ? [{ block, part }] : [])),
    );
    if (homes.length === 0) throw new InputError(`The model has no tensor "${piece.name}".`);
    const words = homes.some(({ block }) => block.isStored) ? await piece.words?.() : undefined;
    for (const { block, part } of homes) {
      const rows = part.rows ? pieceWithin(piece, part) : piece;
      if (rows.data.length === 0) continue;
      if (words && block.isStored)
        this.#writeWords(block, part, rows, { words, first: rows.data.byteOffset - piece.data.byteOffset });
      else this.#writePart(block, part, rows);
    }
  }

  /**
   * Writes rows that are already packed in the file. `first` is the offset of these rows in the piece, in bytes of
   * float32.
   */
  #writeWords(block: Block, part: TensorPart, rows: WeightPiece, packed: { words: Uint32Array; first: number }): void {
    const words = packedBytes(block.format as PackedFormat, PACKED_BLOCK) / 4;
    const [from, blocks] = [packed.first / 4 / PACKED_BLOCK, rows.data.length / PACKED_BLOCK];
    const at = ((part.column + rows.first) / PACKED_BLOCK) * words;
    this.#arena.gpu.write(
      this.#arena.view(block.label),
      packed.words.subarray(from * words, (from + blocks) * words),
      at,
    );
  }

  /** Converts the collected block. */
  close(): void {
    if (!this.#open?.format) return;
    const { gpu, scratch, packing } = this.#arena;
    const { label, size: n, format } = this.#open;
    const [x, y] = [scratch.view, this.#arena.view(label)];
    if (format === 'half') cast(gpu, { x, y, n });
    else packing!.pack(gpu, { x, packed: y, n, format });
    this.#open = undefined;
  }

  #writePart(block: Block, part: TensorPart, { shape, first, data }: WeightPiece): void {
    if (block.format === 'half' && !part.transposed) return this.#castIn(block, data, part.column + first);
    const { gpu } = this.#arena;
    const { view, start: begin } = this.#target(block);
    const start = begin + part.column;
    if (!part.transposed) return gpu.write(view, data, start + first);
    const cols = shape[1];
    const [rows, firstRow] = [data.length / cols, first / cols];
    const turned = transposed(data, rows, cols);
    if (rows === block.width) return gpu.write(view, turned, start);
    for (let c = 0; c < cols; c++)
      gpu.write(view, turned.subarray(c * rows, (c + 1) * rows), start + c * block.width + firstRow);
  }

  /** Writes values as 16-bit floats from element `at` of a block on, in pieces that fit into the scratch buffer. */
  #castIn(block: Block, data: Float32Array, at: number): void {
    this.close(); // the conversion needs the full scratch buffer
    const { gpu, scratch } = this.#arena;
    const y = this.#arena.view(block.label);
    for (let i = 0; i < data.length; i += scratch.bytes / 4) {
      const piece = data.subarray(i, i + scratch.bytes / 4);
      gpu.write(scratch.view, piece);
      cast(gpu, { x: scratch.view, y, n: piece.length, atY: at + i });
    }
  }

  /** Returns the view to which a block's values are written, and the index of the block's first element there. */
  #target(block: Block): { view: View; start: number } {
    if (!block.format) return { view: this.#arena.buffers[block.buffer], start: block.offset / 4 };
    if (this.#open !== block) this.close();
    this.#open = block;
    return { view: this.#arena.scratch.view, start: 0 };
  }
}

/** Returns the values of a block as float32 if it is stored in another format; undefined for a float32 block. */
async function convertedValues(arena: Blocks, block: Block): Promise<Float32Array | undefined> {
  if (block.format === 'half') return castOut(arena, block);
  return block.format && arena.gpu.readF32(arena.float32(arena.view(block.label)));
}

async function castOut(arena: Blocks, { label, size }: Block): Promise<Float32Array> {
  const { gpu, scratch } = arena;
  const [x, all] = [arena.view(label), new Float32Array(size)];
  for (let atX = 0; atX < size; atX += scratch.bytes / 4) {
    const n = Math.min(scratch.bytes / 4, size - atX);
    cast(gpu, { x, y: scratch.view, n, atX });
    const [piece] = await gpu.readRanges([{ view: scratch.view, offset: 0, bytes: n * 4 }]);
    all.set(new Float32Array(piece), atX);
  }
  return all;
}

/** Reads a block back in pieces, so that the read-back buffer does not grow with the model. */
async function readBuffer(gpu: Gpu, view: View): Promise<Float32Array> {
  if (view.bytes <= EXPORT_PIECE_BYTES) return gpu.readF32(view);
  const all = new Float32Array(view.bytes / 4);
  for (let offset = 0; offset < view.bytes; offset += EXPORT_PIECE_BYTES) {
    const bytes = Math.min(EXPORT_PIECE_BYTES, view.bytes - offset);
    const [piece] = await gpu.readRanges([{ view, offset, bytes }]);
    all.set(new Float32Array(piece), offset / 4);
  }
  return all;
}

/**
 * Returns the section of a piece that is in the rows of a tensor part, with `first` counted from the part's first row.
 */
function pieceWithin({ first, data, ...piece }: WeightPiece, { rows, shape }: TensorPart): WeightPiece {
  const [begin, end] = [rows!.first * shape[1], (rows!.first + rows!.count) * shape[1]];
  const [from, to] = [Math.max(begin, first), Math.min(end, first + data.length)];
  return { ...piece, first: Math.max(0, from - begin), data: data.subarray(from - first, Math.max(from, to) - first) };
}

/** Transposes x [rows, cols] to [cols, rows]. */
function transposed(x: Float32Array, rows: number, cols: number): Float32Array {
  const y = new Float32Array(x.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) y[c * rows + r] = x[r * cols + c];
  return y;
}

function findTensor(tensors: TensorMap, part: TensorPart) {
  const found = tensors.get(part.name);
  if (!found) throw new InputError(`The checkpoint has no "${part.name}" [${part.shape.join(', ')}].`);
  if (found.shape.join() !== part.shape.join())
    throw new InputError(
      `"${part.name}" is [${found.shape.join(', ')}] in the checkpoint but [${part.shape.join(', ')}] by its config.json.`,
    );
  return found;
}

/** Copies one Hugging Face tensor into its block ('in') or out of it ('out'). */
function copyPart(block: Block, part: TensorPart, host: Float32Array, all: Float32Array, way: 'in' | 'out'): void {
  const begin = (part.rows?.first ?? 0) * block.width;
  const data = part.rows ? all.subarray(begin, begin + block.size) : all;
  const [rows, cols] = part.transposed ? part.shape : [data.length, 1];
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const at = part.transposed ? c * block.width + part.column + r : part.column + r;
      if (way === 'in') host[at] = data[r * cols + c];
      else data[r * cols + c] = host[at];
    }
  }
}
