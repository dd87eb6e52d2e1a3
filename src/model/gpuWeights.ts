/**
 * The one copy of the weights: an arena of one GPUBuffer that rollout reads, training reads, and AdamW updates in place.
 *
 * Linear weights are kept transposed, [in, out], so that the forward product reads neighbouring columns from
 * neighbouring threads; q, k and v are one matrix, gate and up another. HF names and layouts exist only in `importTensors`
 * and `exportTensors`.
 */

import type { Gpu, View } from '../gpu/device.ts';
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
}

/** One contiguous tensor of the arena. */
export interface Block {
  label: string;
  /** Elements. */
  size: number;
  /** Columns of a row of the block. */
  width: number;
  /** Byte offset in the arena, a multiple of 256. */
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
  /** [V, C] */ embed: View;
  layers: LayerViews[];
  /** [C] */ finalNorm: View;
  /** [V, C]; the same view as embed when tied */ head: View;
}

/** How an arena is laid out. */
export interface ArenaPlan {
  blocks: Block[];
  bytes: number;
}

/** The blocks of a config, in arena order, with byte offsets. */
export function planBlocks(config: ModelConfig): ArenaPlan {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const blocks: Block[] = [];
  let offset = 0;
  const shapes = new Map(parameterSpecs(config).map((s) => [s.name, s.shape]));
  const add = (label: string, width: number, parts: [name: string, column?: number, transposed?: boolean][]) => {
    const named = parts.map(([name, column = 0, transposed = false]) => ({
      name,
      shape: shapes.get(name)!,
      transposed,
      column,
    }));
    const size = named.reduce((sum, p) => sum + p.shape.reduce((a, b) => a * b, 1), 0);
    blocks.push({ label, size, width, offset, parts: named });
    offset += Math.ceil((size * 4) / 256) * 256;
  };
  add('embed', C, [['model.embed_tokens.weight']]);
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
  if (!config.tieWordEmbeddings) add('head', C, [['lm_head.weight']]);
  return { blocks, bytes: offset };
}

/** Tensors in one GPUBuffer, addressed by block, filled and read by HF (or PEFT) name. */
export class Arena {
  readonly arena: View;
  /** 4-byte values in the arena, padding included (padding stays 0). */
  readonly elements: number;
  readonly #gpu: Gpu;
  readonly #blocks: Block[];
  readonly #views: Map<string, View>;

  constructor(gpu: Gpu, { blocks, bytes }: ArenaPlan, label: string) {
    this.#gpu = gpu;
    this.#blocks = blocks;
    this.arena = gpu.buffer(label, bytes);
    this.elements = bytes / 4;
    this.#views = new Map(blocks.map((b) => [b.label, gpu.slice(this.arena, b.offset, b.size * 4)]));
  }

  /** The block of that label; a RangeError where there is none. */
  view(label: string): View {
    const view = this.#views.get(label);
    if (!view) throw new RangeError(`The arena "${this.arena.buffer.label}" has no block "${label}".`);
    return view;
  }

  has(label: string): boolean {
    return this.#views.has(label);
  }

  /** Host to device. Throws InputError naming a tensor that is missing or has another shape. */
  importTensors(tensors: TensorMap): void {
    for (const block of this.#blocks) {
      const host = new Float32Array(block.size);
      for (const part of block.parts) copyPart(block, part, host, findTensor(tensors, part).data, 'in');
      this.#gpu.write(this.arena, host, block.offset / 4);
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

  #importPiece({ name, shape, first, data }: WeightPiece): void {
    const block = this.#blocks.find(({ parts }) => parts.some((part) => part.name === name));
    const part = block?.parts.find((candidate) => candidate.name === name);
    if (!block || !part) throw new InputError(`The model has no tensor "${name}".`);
    const start = block.offset / 4 + part.column;
    if (!part.transposed) return this.#gpu.write(this.arena, data, start + first);
    const cols = shape[1];
    const [rows, firstRow] = [data.length / cols, first / cols];
    const turned = transposed(data, rows, cols);
    if (rows === block.width) return this.#gpu.write(this.arena, turned, start);
    for (let c = 0; c < cols; c++)
      this.#gpu.write(this.arena, turned.subarray(c * rows, (c + 1) * rows), start + c * block.width + firstRow);
  }

  /** Device to host, by HF name. */
  async exportTensors(): Promise<TensorMap> {
    const all = await this.#gpu.readF32(this.arena);
    const tensors: TensorMap = new Map();
    for (const block of this.#blocks) {
      const host = all.subarray(block.offset / 4, block.offset / 4 + block.size);
      for (const part of block.parts) {
        const data = new Float32Array(part.shape.reduce((a, b) => a * b, 1));
        copyPart(block, part, host, data, 'out');
        tensors.set(part.name, { shape: part.shape, data });
      }
    }
    return tensors;
  }

  free(): void {
    this.#gpu.free(this.arena);
  }
}

/** Bytes written to the device before it is waited for. */
const PENDING_BYTES = 16 << 20;

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
    super(gpu, planBlocks(config), label);
    this.views = {
      embed: this.view('embed'),
      layers: Array.from({ length: config.numHiddenLayers }, (_, l) => layerViews(this, l)),
      finalNorm: this.view('finalNorm'),
      head: this.view(this.has('head') ? 'head' : 'embed'),
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
function copyPart(block: Block, part: Part, host: Float32Array, data: Float32Array, way: 'in' | 'out'): void {
  const [rows, cols] = part.transposed ? part.shape : [data.length, 1];
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < cols; c++) {
      const at = part.transposed ? c * block.width + part.column + r : part.column + r;
      if (way === 'in') host[at] = data[r * cols + c];
      else data[r * cols + c] = host[at];
    }
  }
}
