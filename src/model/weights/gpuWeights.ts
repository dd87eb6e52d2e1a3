/**
 * The one copy of the weights: an arena that rollout reads, training reads, and AdamW updates in place. It is one GPUBuffer
 * where the device binds that much, else as many as it takes; a table beyond one is split by rows.
 *
 * Linear weights are kept transposed, [in, out], so that the forward product reads neighbouring columns from
 * neighbouring threads; q, k and v are one matrix, gate and up another. HF names and layouts exist only in `importTensors`
 * and `exportTensors`.
 */

import type { Gpu } from '../../gpu/device.ts';
import { asHalves, type View } from '../../gpu/view.ts';
import type { RowChunk } from '../../gpu/ops/embed.ts';
import { cast } from '../../gpu/ops/cast.ts';
import { gatedMatmul, type MatmulArgs, matmulNn, matmulNt } from '../../gpu/ops/matmul.ts';
import type { matmulPacked } from '../../gpu/ops/matmulPacked.ts';
import type { pack } from '../../gpu/ops/pack.ts';
import { unpack } from '../../gpu/ops/unpack.ts';
import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { InputError } from '../../errors.ts';
import type { WeightPiece, WeightSource } from '../checkpoint/open.ts';
import {
  type ArenaPlan,
  type Block,
  blockBytes,
  halfCopy,
  type Kept,
  loadingRoom,
  type Part,
  planBlocks,
} from './plan.ts';

export interface LayerViews {
  /** [C] */ attnNorm: View;
  /** [C, (H + 2K) * D] */ wqkv: View;
  /** [(H + 2K) * D] */ bqkv?: View;
  /** [2, D]: q norm, k norm */ qkNorm?: View;
  /** [H * D, C] */ wo: View;
  /** [C] */ bo?: View;
  /** [C] */ mlpNorm: View;
  /** [C, 2F] */ wgu: View;
  /** [2F] */ bgu?: View;
  /** [F, C] */ wdown: View;
  /** [C] */ bdown?: View;
}

export interface WeightViews {
  /** [V, C] */ embed: RowChunk[];
  layers: LayerViews[];
  /** [C] */ finalNorm: View;
  /** [V, C]; the same as embed when tied */ head: RowChunk[];
}

/** Tensors in few GPUBuffers (one, where that can be bound), addressed by block, filled and read by HF (or PEFT) name. */
export class Arena {
  /** Whole buffers, padding included (padding stays 0). */
  readonly buffers: View[];
  readonly #gpu: Gpu;
  readonly #blocks: Block[];
  readonly #views: Map<string, View>;
  /** What packs weights as they arrive; there where the plan has packed blocks. */
  pack: typeof pack | undefined;
  /** The product that reads packed weights as they are; without it they are unpacked first. */
  packedProduct: typeof matmulPacked | undefined;
  readonly #label: string;
  /** Room for blocks as float32, where they are kept otherwise; there while it is needed. */
  #plain: View | undefined;
  /** The block whose parts are arriving in #plain. */
  #open: Block | undefined;

  constructor(gpu: Gpu, plan: ArenaPlan, label: string) {
    const { blocks, buffers } = plan;
    this.#gpu = gpu;
    this.#label = label;
    this.#blocks = blocks;
    this.buffers = buffers.map((bytes, i) => gpu.buffer(i === 0 ? label : `${label}.${i}`, bytes));
    this.#views = new Map(blocks.map((b) => [b.label, this.#viewOf(b)]));
  }

  #viewOf({ buffer, offset, size, format, ...block }: Block): View {
    const view = this.#gpu.slice(this.buffers[buffer], offset, blockBytes({ ...block, size, format }));
    if (format === 'half') return asHalves(view);
    return format ? { ...view, packed: { format, elements: size } } : view;
  }

  get #room(): View {
    return (this.#plain ??= this.#gpu.buffer(`${this.#label}.float32`, loadingRoom({ blocks: this.#blocks }) * 4));
  }

  /**
   * The weights of a view as products take them: the view itself, or, packed, recorded as float32 into room that the next
   * call takes again.
   */
  float32(view: View): View {
    if (!view.packed) return view;
    const { format, elements: n } = view.packed;
    unpack(this.#gpu, { packed: view, y: this.#room, n, format });
    return this.#room;
  }

  /** Records y = x b, or x b^T, for a matrix b of these weights; a packed one is made float32 in the product, if it can be. */
  product(args: MatmulArgs, transposed = false): void {
    if (args.b.packed && this.packedProduct) return this.packedProduct(this.#gpu, { ...args, transposed });
    const b = this.float32(args.b);
    (transposed ? matmulNt : matmulNn)(this.#gpu, b === args.b ? args : { ...args, b });
  }

  /** Records y [M, N / 2] = silu(gate) * up for x b = [gate | up] where one kernel does both; else false, and nothing. */
  gatedProduct(args: MatmulArgs): boolean {
    return !args.b.packed && gatedMatmul(this.#gpu, args);
  }

  /** The block of that label; a RangeError where there is none. */
  view(label: string): View {
    const view = this.#views.get(label);
    if (!view) throw new RangeError(`The arena "${this.buffers[0].buffer.label}" has no block "${label}".`);
    return view;
  }

  /** A table: one block of that label, or its chunks of rows. */
  chunks(label: string): RowChunk[] {
    const chunk = ({ label: name, size, width, parts }: Block): RowChunk => ({
      view: this.view(name),
      first: parts[0].rows?.first ?? 0,
      rows: size / width,
    });
    return this.#blocks.filter(({ label: name }) => name === label || name.startsWith(`${label}.`)).map(chunk);
  }

  has(label: string): boolean {
    return this.#views.has(label);
  }

  /** 4-byte values in all buffers. */
  get elements(): number {
    return this.buffers.reduce((sum, { bytes }) => sum + bytes / 4, 0);
  }

  /** Host to device. Throws InputError naming a tensor that is missing or has another shape. */
  importTensors(tensors: TensorMap): void {
    for (const block of this.#blocks) {
      const host = new Float32Array(block.size);
      for (const part of block.parts) copyPart(block, part, host, findTensor(tensors, part).data, 'in');
      if (block.format === 'half') this.#castIn(block, host, 0);
      else {
        const { view, start } = this.#target(block);
        this.#gpu.write(view, host, start);
      }
    }
    this.#close();
    this.#loaded();
  }

  /** Called when the values have changed, by an import or an optimizer. */
  refresh(): void {}

  #loaded(): void {
    this.#freeRoom(); // a product that unpacks first takes it again
    this.refresh();
  }

  #freeRoom(): void {
    if (this.#plain) this.#gpu.free(this.#plain);
    this.#plain = undefined;
  }

  /** Writes halves from element `at` of a block on, as many at a time as there is room for. */
  #castIn(block: Block, data: Float32Array, at: number): void {
    const [room, y] = [this.#room, this.view(block.label)];
    for (let i = 0; i < data.length; i += room.bytes / 4) {
      const piece = data.subarray(i, i + room.bytes / 4);
      this.#gpu.write(room, piece);
      cast(this.#gpu, { x: room, y, n: piece.length, atY: at + i });
    }
  }

  async #castOut({ label, size }: Block): Promise<Float32Array> {
    const [room, x, all] = [this.#room, this.view(label), new Float32Array(size)];
    for (let atX = 0; atX < size; atX += room.bytes / 4) {
      const n = Math.min(room.bytes / 4, size - atX);
      cast(this.#gpu, { x, y: room, n, atX });
      const [piece] = await this.#gpu.readRanges([{ view: room, offset: 0, bytes: n * 4 }]);
      all.set(new Float32Array(piece), atX);
    }
    return all;
  }

  /** Where a block is written to, and the element it starts at: one that is not kept as float32 is collected first. */
  #target(block: Block): { view: View; start: number } {
    if (!block.format) return { view: this.buffers[block.buffer], start: block.offset / 4 };
    if (this.#open !== block) this.#close();
    this.#open = block;
    return { view: this.#room, start: 0 };
  }

  /** Converts the block that was collected. Parts of one block come one after another. */
  #close(): void {
    if (!this.#open?.format) return;
    const { label, size: n, format } = this.#open;
    const [x, y] = [this.#room, this.view(label)];
    if (format === 'half') cast(this.#gpu, { x, y, n });
    else this.pack!(this.#gpu, { x, packed: y, n, format });
    this.#open = undefined;
  }

  /** Host to device, piece by piece: what is in host memory is a few pieces, never the model. */
  async importFrom(source: WeightSource): Promise<void> {
    let pending = 0;
    for await (const piece of source.pieces()) {
      this.#importPiece(piece);
      // A device keeps a copy of what was written until it has run.
      if ((pending += piece.data.byteLength) < PENDING_BYTES) continue;
      await this.#gpu.idle();
      pending = 0;
    }
    this.#close();
    await this.#gpu.idle();
    this.#loaded();
  }

  #importPiece(piece: WeightPiece): void {
    const homes = this.#blocks.flatMap((block) =>
      block.parts.flatMap((part) => (part.name === piece.name ? [{ block, part }] : [])),
    );
    if (homes.length === 0) throw new InputError(`The model has no tensor "${piece.name}".`);
    for (const { block, part } of homes) {
      const own = part.rows ? pieceWithin(piece, part) : piece;
      if (own.data.length > 0) this.#writePiece(block, part, own);
    }
  }

  #writePiece(block: Block, part: Part, { shape, first, data }: WeightPiece): void {
    if (block.format === 'half' && !part.transposed) return this.#castIn(block, data, part.column + first);
    const { view: buffer, start: begin } = this.#target(block);
    const start = begin + part.column;
    if (!part.transposed) return this.#gpu.write(buffer, data, start + first);
    const cols = shape[1];
    const [rows, firstRow] = [data.length / cols, first / cols];
    const turned = transposed(data, rows, cols);
    if (rows === block.width) return this.#gpu.write(buffer, turned, start);
    for (let c = 0; c < cols; c++)
      this.#gpu.write(buffer, turned.subarray(c * rows, (c + 1) * rows), start + c * block.width + firstRow);
  }

  /** Device to host, by HF name. */
  async exportTensors(): Promise<TensorMap> {
    const tensors: TensorMap = new Map();
    const keep = this.#plain !== undefined;
    for (const [i, buffer] of this.buffers.entries()) {
      const all = await this.#readBuffer(buffer);
      for (const block of this.#blocks.filter((candidate) => candidate.buffer === i)) {
        const host = (await this.#plainValues(block)) ?? all.subarray(block.offset / 4, block.offset / 4 + block.size);
        for (const part of block.parts) {
          const { name, shape } = part;
          if (!tensors.has(name))
            tensors.set(name, { shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) });
          copyPart(block, part, host, tensors.get(name)!.data, 'out');
        }
      }
    }
    if (!keep) this.#freeRoom();
    return tensors;
  }

  /** A block that is not kept as float32, as such. */
  async #plainValues(block: Block): Promise<Float32Array | undefined> {
    if (block.format === 'half') return this.#castOut(block);
    return block.format && this.#gpu.readF32(this.float32(this.view(block.label)));
  }

  /** In pieces, so that the read-back buffer does not grow with the model. */
  async #readBuffer(view: View): Promise<Float32Array> {
    if (view.bytes <= EXPORT_PIECE_BYTES) return this.#gpu.readF32(view);
    const all = new Float32Array(view.bytes / 4);
    for (let offset = 0; offset < view.bytes; offset += EXPORT_PIECE_BYTES) {
      const bytes = Math.min(EXPORT_PIECE_BYTES, view.bytes - offset);
      const [piece] = await this.#gpu.readRanges([{ view, offset, bytes }]);
      all.set(new Float32Array(piece), offset / 4);
    }
    return all;
  }

  free(): void {
    for (const buffer of this.buffers) this.#gpu.free(buffer);
    this.#freeRoom();
  }
}

/** Most bytes read back at a time. */
export const EXPORT_PIECE_BYTES = 32 << 20;

/** Bytes written to the device before it is waited for. */
const PENDING_BYTES = 16 << 20;

/** What of a piece lies in the rows of a part, counted from the part's first. */
function pieceWithin({ first, data, ...piece }: WeightPiece, { rows, shape }: Part): WeightPiece {
  const [begin, end] = [rows!.first * shape[1], (rows!.first + rows!.count) * shape[1]];
  const [from, to] = [Math.max(begin, first), Math.min(end, first + data.length)];
  return { ...piece, first: Math.max(0, from - begin), data: data.subarray(from - first, Math.max(from, to) - first) };
}

/** x [rows, cols] to [cols, rows]. */
function transposed(x: Float32Array, rows: number, cols: number): Float32Array {
  const y = new Float32Array(x.length);
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) y[c * rows + r] = x[r * cols + c];
  return y;
}

/** How the matrices of a model are kept: `trained` ones as float32, read as they are or as a copy in halves. */
export type MatrixForm = Kept | 'trained' | 'trainedHalf';

/** An arena laid out by the blocks of a config: the weights, or their gradients, or a moment. */
export class GpuWeights extends Arena {
  /** What passes read. */
  readonly views: WeightViews;
  readonly #gpu: Gpu;
  /** The matrices once more, as passes read them; absent where they read the weights themselves. */
  readonly #copy: { arena: Arena; labels: string[] } | undefined;

  constructor(gpu: Gpu, config: ModelConfig, label: string, form: MatrixForm = 'trained') {
    const plan = planBlocks(config, gpu.maxArenaBytes, form === 'trained' || form === 'trainedHalf' ? undefined : form);
    super(gpu, plan, label);
    this.#gpu = gpu;
    if (form === 'trainedHalf') {
      const halves = halfCopy(plan, gpu.maxArenaBytes);
      this.#copy = {
        arena: new Arena(gpu, halves, `${label}.half`),
        labels: halves.blocks.map((block) => block.label),
      };
    }
    const [arena, table] = [this.#copy?.arena, (name: string) => (this.#copy?.arena ?? this).chunks(name)];
    this.views = {
      embed: table('embed'),
      layers: Array.from({ length: config.numHiddenLayers }, (_, l) => layerViews(this, arena, l)),
      finalNorm: this.view('finalNorm'),
      head: table(config.tieWordEmbeddings ? 'embed' : 'head'),
    };
  }

  /** Room for n values of a matrix as `float32` gives it. */
  scratch(label: string, n: number): View {
    return this.views.layers[0].wqkv.half ? this.#gpu.halves(label, n) : this.#gpu.buffer(label, n * 4);
  }

  /** Rounds the weights into the copy that passes read, where there is one. */
  override refresh(): void {
    if (!this.#copy) return;
    const { arena, labels } = this.#copy;
    for (const label of labels) {
      const [x, y] = [this.view(label), arena.view(label)];
      cast(this.#gpu, { x, y, n: x.bytes / 4 });
    }
  }

  override free(): void {
    super.free();
    this.#copy?.arena.free();
  }
}

function layerViews(arena: Arena, copy: Arena | undefined, l: number): LayerViews {
  const get = (name: string) => (copy?.has(`${l}.${name}`) ? copy : arena).view(`${l}.${name}`);
  const optional = (name: string) => arena.has(`${l}.${name}`) && { [name]: get(name) };
  return {
    attnNorm: get('attnNorm'),
    wqkv: get('wqkv'),
    ...optional('bqkv'),
    ...optional('qkNorm'),
    ...optional('bo'),
    ...optional('bgu'),
    ...optional('bdown'),
    wo: get('wo'),
    mlpNorm: get('mlpNorm'),
    wgu: get('wgu'),
    wdown: get('wdown'),
  };
}

function findTensor(tensors: TensorMap, part: Part) {
  const found = tensors.get(part.name);
  if (!found) throw new InputError(`The checkpoint has no "${part.name}" [${part.shape.join(', ')}].`);
  if (found.shape.join() !== part.shape.join())
    throw new InputError(
      `"${part.name}" is [${found.shape.join(', ')}] in the checkpoint but [${part.shape.join(', ')}] by its config.json.`,
    );
  return found;
}

/** Copies one HF tensor into ('in') or out of ('out') its block. */
function copyPart(block: Block, part: Part, host: Float32Array, all: Float32Array, way: 'in' | 'out'): void {
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
