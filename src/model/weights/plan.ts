/** Layout of weights: blocks concatenated in few buffers, and the position of each Hugging Face tensor in them. */

import { fitsPackedProduct, packedBytes, type PackedFormat } from '../../gpu/packedFormat.ts';
import type { ModelConfig } from '../config.ts';
import { InputError } from '../../errors.ts';
import { parameterSpecs } from '../params.ts';

/**
 * Storage format of a matrix that is not float32: packed in fewer bits, or as 16-bit floats that kernels read directly.
 */
export type Kept = PackedFormat | 'half';

/**
 * Position of one Hugging Face tensor in a block: its values start at column `column`, as [rows, cols] or transposed if
 * `transposed`.
 */
export interface TensorPart {
  name: string;
  shape: number[];
  transposed: boolean;
  column: number;
  /** Rows of the tensor that the block holds. Default: all rows. */
  rows?: { first: number; count: number };
}

/** One contiguous tensor of the arena; several Hugging Face tensors can be parts of it. */
export interface Block {
  label: string;
  /** Number of elements in the block. */
  size: number;
  /** Number of columns of the block. */
  width: number;
  /** Index of the arena's buffer that holds the block. */
  buffer: number;
  /** Byte offset in that buffer, a multiple of 256. */
  offset: number;
  parts: TensorPart[];
  /** Storage format of the block; undefined = float32. */
  format?: Kept | undefined;
  /** True if the block keeps the packed format of its file. A matrix of a layer is then stored as [out, in]. */
  isStored?: boolean;
}

/** Returns the size of a block in its buffer, in bytes. */
export const blockBytes = ({ size, format }: Pick<Block, 'size' | 'format'>): number =>
  format === 'half' ? Math.ceil(size / 2) * 4 : format ? packedBytes(format, size) : size * 4;

/** Maximum bytes in float32 of one chunk of a packed table; larger tables are split. */
const PACKED_TABLE_BYTES = 16 << 20;

/** Layout of an arena. */
export interface ArenaPlan {
  blocks: Block[];
  /** Bytes of each buffer. */
  buffers: number[];
  bytes: number;
}

/**
 * Concatenates blocks in buffers of at most `maxBytes`, in order. Throws InputError for a block that fits into no
 * buffer.
 */
export function placeBlocks(blocks: Omit<Block, 'buffer' | 'offset'>[], maxBytes = Infinity): ArenaPlan {
  const buffers = [0];
  const placed = blocks.map((block) => {
    const bytes = Math.ceil(blockBytes(block) / 256) * 256;
    if (bytes > maxBytes)
      throw new InputError(
        `The weights "${block.label}" take ${bytes} bytes, but this device binds at most ${maxBytes}. Use a smaller model or another device.`,
      );
    if (buffers[buffers.length - 1] + bytes > maxBytes) buffers.push(0);
    const buffer = buffers.length - 1;
    const offset = buffers[buffer];
    buffers[buffer] += bytes;
    return { ...block, buffer, offset };
  });
  return { blocks: placed, buffers, bytes: buffers.reduce((a, b) => a + b, 0) };
}

/** Returns the number of rows of a [V, C] table per buffer: all, or a multiple of 64. */
function rowChunks(V: number, C: number, maxBytes: number): { first: number; count: number }[] {
  const fit = Math.floor(maxBytes / (C * 4));
  const step = fit >= V ? V : Math.max(64, Math.floor(fit / 64) * 64);
  return Array.from({ length: Math.ceil(V / step) }, (_, i) => ({
    first: i * step,
    count: Math.min(step, V - i * step),
  }));
}

/**
 * Returns the number of values in the largest packed block, which must fit into the float32 scratch buffer; 0 if no
 * block is packed.
 */
export const largestPacked = ({ blocks }: Pick<ArenaPlan, 'blocks'>): number =>
  blocks.reduce((most, { size, format }) => (isPacked(format) ? Math.max(most, size) : most), 0);

const isPacked = (format: Kept | undefined): format is PackedFormat => format !== undefined && format !== 'half';

/**
 * Plans a copy of the matrices in 16-bit floats, in buffers of at most `maxBytes`. Passes read the copy, and the
 * optimizer updates the float32 values.
 */
export const halfCopy = ({ blocks }: ArenaPlan, maxBytes = Infinity): ArenaPlan =>
  placeBlocks(
    blocks.filter(({ parts }) => isMatrix(parts)).map((block) => ({ ...block, format: 'half' })),
    maxBytes,
  );

/**
 * Number of values that are converted to or from 16-bit floats at a time. Transposed blocks are converted in one piece.
 */
const CAST_PIECE = 1 << 20;

/** Returns the number of values that the float32 scratch buffer must hold to import and export a plan's blocks. */
export const loadingRoom = ({ blocks }: Pick<ArenaPlan, 'blocks'>): number =>
  blocks.reduce((most, { size, format, parts }) => {
    if (!format) return most;
    return Math.max(most, format === 'half' && !parts[0].transposed ? Math.min(size, CAST_PIECE) : size);
  }, 0);

/** True for the embedding and the head, which are stored as [V, C] in every form. */
export const isTable = (name: string): boolean => !name.startsWith('model.layers.');

const isMatrix = ([{ shape }]: TensorPart[]): boolean => shape.length === 2;

/**
 * True if products can read this model's packed matrices directly: all dimensions must be multiples of 8, as in real
 * models.
 */
export function readsPacked({ vocabSize: V, hiddenSize: C, intermediateSize: F, ...config }: ModelConfig): boolean {
  const { headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  return [V, F, H * D, (H + 2 * K) * D].every((side) => fitsPackedProduct(side, C));
}

/** Formats of tensors in the checkpoint file by their HF names; see `OpenCheckpoint.packed`. */
export type StoredFormats = Readonly<Record<string, PackedFormat>>;

/** Returns the packed format in which a file has all parts of a matrix; undefined if they do not share one. */
function storedFormat(parts: readonly TensorPart[], stored: StoredFormats): PackedFormat | undefined {
  const [format, ...others] = new Set(parts.map(({ name }) => stored[name]));
  return others.length === 0 ? format : undefined;
}

/** Returns the parts of a matrix placed one below the other, in the row order of checkpoint files. */
function inRows(parts: readonly TensorPart[]): TensorPart[] {
  let column = 0;
  return parts.map((part) => {
    const placed = { ...part, transposed: false, column };
    column += part.shape[0] * part.shape[1];
    return placed;
  });
}

/** Splits a [V, C] table into chunks for a device that can bind `maxBytes`. */
const tableChunks = ({ vocabSize, hiddenSize }: ModelConfig, maxBytes: number, format?: Kept) =>
  rowChunks(vocabSize, hiddenSize, isPacked(format) ? Math.min(maxBytes, PACKED_TABLE_BYTES) : maxBytes);

/**
 * Plans the blocks for a model's config, in arena order, in buffers of at most `maxBytes`. Matrices are stored in
 * `format`, if given.
 * @param stored packed formats of tensors in the file; a matrix whose parts all have one stays packed
 */
export function planBlocks(
  config: ModelConfig,
  maxBytes = Infinity,
  format?: Kept,
  stored: StoredFormats = {},
): ArenaPlan {
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
    const own = storedFormat(named, stored);
    if (own) blocks.push({ label, size, width: named[0].shape[1], parts: inRows(named), format: own, isStored: true });
    else blocks.push({ label, size, width, parts: named, ...(isMatrix(named) && { format }) });
  };
  const addTable = (label: string, name: string) => {
    const part = { name, shape: shapes.get(name)!, transposed: false, column: 0 };
    const own = storedFormat([part], stored);
    const chunks = tableChunks(config, maxBytes, own ?? format);
    if (chunks.length === 1) return add(label, C, [[name]]);
    const kept = own ? { format: own, isStored: true } : { format };
    chunks.forEach((rows, i) =>
      blocks.push({ label: `${label}.${i}`, size: rows.count * C, width: C, parts: [{ ...part, rows }], ...kept }),
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
