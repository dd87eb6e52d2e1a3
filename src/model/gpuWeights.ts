/**
 * The one copy of the weights: an arena that rollout reads, training reads, and AdamW updates in place. It is one GPUBuffer
 * where the device binds that much, else as many as it takes; a table beyond one is split by rows.
 *
 * Linear weights are kept transposed, [in, out], so that the forward product reads neighbouring columns from
 * neighbouring threads; q, k and v are one matrix, gate and up another. HF names and layouts exist only in `importTensors`
 * and `exportTensors`.
 */

import type { Gpu, View } from '../gpu/device.ts';
import type { RowChunk } from '../gpu/ops/embed.ts';
import type { ModelConfig } from './config.ts';
import type { TensorMap } from './engine.ts';
import { InputError } from './errors.ts';
import type { WeightPiece, WeightSource } from './openCheckpoint.ts';
import { parameterSpecs } from './params.ts';

/** Where one HF tensor lies in a block: [rows, cols] of HF, written transposed at column `column` when it is a matrix. */
interface Part {
  name: string;
  shape: number[];
  transposed: boolean;
  column: number;
  /** Where the block holds only some rows of the tensor. */
  rows?: { first: number; count: number };
}

/** One contiguous tensor of the arena. */
export interface Block {
  label: string;
  /** Elements. */
  size: number;
  /** Columns of a row of the block. */
  width: number;
  /** Number of its buffer in the arena. */
  buffer: number;
  /** Byte offset in that buffer, a multiple of 256. */
  offset: number;
  parts: Part[];
}

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

/** How an arena is laid out. */
export interface ArenaPlan {
  blocks: Block[];
  /** Bytes of each buffer. */
  buffers: number[];
  bytes: number;
}

/**
 * Lays blocks end to end in buffers of at most `maxBytes`, in order. Throws InputError for a block that fits none.
 */
export function placeBlocks(blocks: Omit<Block, 'buffer' | 'offset'>[], maxBytes = Infinity): ArenaPlan {
  const buffers = [0];
  const placed = blocks.map((block) => {
    const bytes = Math.ceil((block.size * 4) / 256) * 256;
    if (bytes > maxBytes)
      throw new InputError(
        `The weights "${block.label}" take ${bytes} bytes, but this device binds at most ${maxBytes}; take a smaller model or another device.`,
      );
    if (buffers[buffers.length - 1] + bytes > maxBytes) buffers.push(0);
    const buffer = buffers.length - 1;
    const offset = buffers[buffer];
    buffers[buffer] += bytes;
    return { ...block, buffer, offset };
  });
  return { blocks: placed, buffers, bytes: buffers.reduce((a, b) => a + b, 0) };
}

/** Rows of a [V, C] table that a buffer holds: all, or a multiple of 64. */
export function rowChunks(V: number, C: number, maxBytes: number): { first: number; count: number }[] {
  const fit = Math.floor(maxBytes / (C * 4));
  const step = fit >= V ? V : Math.max(64, Math.floor(fit / 64) * 64);
  return Array.from({ length: Math.ceil(V / step) }, (_, i) => ({
    first: i * step,
    count: Math.min(step, V - i * step),
  }));
}

/** The blocks of a config, in arena order, in buffers of at most `maxBytes`. */
export function planBlocks(config: ModelConfig, maxBytes = Infinity): ArenaPlan {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const blocks: Omit<Block, 'buffer' | 'offset'>[] = [];
  const shapes = new Map(parameterSpecs(config).map((s) => [s.name, s.shape]));
  const add = (label: string, width: number, parts: [name: string, column?: number, transposed?: boolean][]) => {
    const named = parts.map(([name, column = 0, transposed = false]) => ({
      name,
      shape: shapes.get(name)!,
      transposed,
      column,
    }));
    const size = named.reduce((sum, p) => sum + p.shape.reduce((a, b) => a * b, 1), 0);
    blocks.push({ label, size, width, parts: named });
  };
  const addTable = (label: string, name: string) => {
    const part = { name, shape: shapes.get(name)!, transposed: false, column: 0 };
    const chunks = rowChunks(config.vocabSize, C, maxBytes);
    if (chunks.length === 1) return add(label, C, [[name]]);
    chunks.forEach((rows, i) =>
      blocks.push({ label: `${label}.${i}`, size: rows.count * C, width: C, parts: [{ ...part, rows }] }),
    );
  };
  addTable('embed', 'model.embed_tokens.weight');
  for (let l = 0; l < config.numHiddenLayers; l++) {
    const at = `model.layers.${l}`;
    const [q, k, v] = ['q', 'k', 'v'].map((n) => `${at}.self_attn.${n}_proj`);
    add(`${l}.attnNorm`, C, [[`${at}.input_layernorm.weight`]]);
    add(`${l}.wqkv`, (H + 2 * K) * D, [
      [`${q}.weight`, 0, true],
      [`${k}.weight`, H * D, true],
      [`${v}.weight`, (H + K) * D, true],
    ]);
    if (config.qkvBias)
      add(`${l}.bqkv`, (H + 2 * K) * D, [
        [`${q}.bias`, 0],
        [`${k}.bias`, H * D],
        [`${v}.bias`, (H + K) * D],
      ]);
    if (config.qkNorm)
      add(`${l}.qkNorm`, 2 * D, [
        [`${at}.self_attn.q_norm.weight`, 0],
        [`${at}.self_attn.k_norm.weight`, D],
      ]);
    add(`${l}.wo`, C, [[`${at}.self_attn.o_proj.weight`, 0, true]]);
    if (config.oBias) add(`${l}.bo`, C, [[`${at}.self_attn.o_proj.bias`]]);
    add(`${l}.mlpNorm`, C, [[`${at}.post_attention_layernorm.weight`]]);
    add(`${l}.wgu`, 2 * F, [
      [`${at}.mlp.gate_proj.weight`, 0, true],
      [`${at}.mlp.up_proj.weight`, F, true],
    ]);
    if (config.mlpBias) add(`${l}.bgu`, 2 * F, [[`${at}.mlp.gate_proj.bias`], [`${at}.mlp.up_proj.bias`, F]]);
    add(`${l}.wdown`, C, [[`${at}.mlp.down_proj.weight`, 0, true]]);
    if (config.mlpBias) add(`${l}.bdown`, C, [[`${at}.mlp.down_proj.bias`]]);
  }
  add('finalNorm', C, [['model.norm.weight']]);
  if (!config.tieWordEmbeddings) addTable('head', 'lm_head.weight');
  return placeBlocks(blocks, maxBytes);
}

/** Tensors in few GPUBuffers (one, where that can be bound), addressed by block, filled and read by HF (or PEFT) name. */
export class Arena {
  /** Whole buffers, padding included (padding stays 0). */
  readonly buffers: View[];
  readonly #gpu: Gpu;
  readonly #blocks: Block[];
  readonly #views: Map<string, View>;

  constructor(gpu: Gpu, { blocks, buffers }: ArenaPlan, label: string) {
    this.#gpu = gpu;
    this.#blocks = blocks;
    this.buffers = buffers.map((bytes, i) => gpu.buffer(i === 0 ? label : `${label}.${i}`, bytes));
    this.#views = new Map(blocks.map((b) => [b.label, gpu.slice(this.buffers[b.buffer], b.offset, b.size * 4)]));
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
      this.#gpu.write(this.buffers[block.buffer], host, block.offset / 4);
    }
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
    await this.#gpu.idle();
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
    const buffer = this.buffers[block.buffer];
    const start = block.offset / 4 + part.column;
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
    for (const [i, buffer] of this.buffers.entries()) {
      const all = await this.#readBuffer(buffer);
      for (const block of this.#blocks.filter((candidate) => candidate.buffer === i)) {
        const host = all.subarray(block.offset / 4, block.offset / 4 + block.size);
        for (const part of block.parts) {
          const { name, shape } = part;
          if (!tensors.has(name))
            tensors.set(name, { shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) });
          copyPart(block, part, host, tensors.get(name)!.data, 'out');
        }
      }
    }
    return tensors;
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

/** An arena laid out by the blocks of a config: the weights, or their gradients, or a moment. */
export class GpuWeights extends Arena {
  readonly views: WeightViews;

  constructor(gpu: Gpu, config: ModelConfig, label: string) {
    super(gpu, planBlocks(config, gpu.maxArenaBytes), label);
    this.views = {
      embed: this.chunks('embed'),
      layers: Array.from({ length: config.numHiddenLayers }, (_, l) => layerViews(this, l)),
      finalNorm: this.view('finalNorm'),
      head: this.chunks(config.tieWordEmbeddings ? 'embed' : 'head'),
    };
  }
}

function layerViews(arena: Arena, l: number): LayerViews {
  const get = (name: string) => arena.view(`${l}.${name}`);
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
