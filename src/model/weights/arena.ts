/** Tensors in as few GPUBuffers as possible: one if the device can bind a buffer of that size, otherwise several. */

import type { Gpu } from '../../gpu/device.ts';
import type { RowChunk } from '../../gpu/ops/embed.ts';
import { gatedMatmul, type MatmulArgs, matmulNn, matmulNt } from '../../gpu/ops/matmul.ts';
import type { matmulPacked } from '../../gpu/ops/matmulPacked.ts';
import type { pack } from '../../gpu/ops/pack.ts';
import { unpack } from '../../gpu/ops/unpack.ts';
import { asHalves, type View } from '../../gpu/view.ts';
import type { WeightSource } from '../checkpoint/open.ts';
import type { TensorMap } from '../engine.ts';
import { Float32Scratch } from './float32Scratch.ts';
import { type ArenaPlan, type Block, blockBytes, isTable, largestPacked, loadingRoom } from './plan.ts';
import { exportTensors, importFrom, importTensors } from './transfer.ts';

/** Operations on packed blocks; this code is loaded only if a model has such blocks. */
export interface Packing {
  pack: typeof pack;
  /**
   * Matrix product that reads packed blocks directly. Undefined: they are converted to float32 before each product.
   */
  product?: typeof matmulPacked | undefined;
}

/**
 * Owns the buffers of a plan. Passes address them by block; imports and exports use Hugging Face (or PEFT) names.
 * Optimizers process complete buffers; padding between blocks stays 0. Throws OutOfMemoryError if the device has too
 * little memory.
 */
export class Arena {
  readonly gpu: Gpu;
  readonly blocks: readonly Block[];
  /** Complete buffers, including padding. */
  readonly buffers: View[];
  /** Scratch buffer for conversion to float32. Undefined if no block is packed. */
  readonly packing: Packing | undefined;
  readonly scratch: Float32Scratch;
  readonly #views: Map<string, View>;

  /** @param packing required if the plan has packed blocks */
  constructor(gpu: Gpu, plan: ArenaPlan, label: string, packing?: Packing) {
    this.gpu = gpu;
    this.blocks = plan.blocks;
    const hasPacked = largestPacked(plan) > 0;
    this.packing = hasPacked ? packing : undefined;
    this.buffers = plan.buffers.map((bytes, i) => gpu.buffer(i === 0 ? label : `${label}.${i}`, bytes));
    this.#views = new Map(plan.blocks.map((block) => [block.label, this.#viewOf(block)]));
    const unpacksFirst = hasPacked && !this.readsPacked;
    this.scratch = new Float32Scratch(gpu, `${label}.float32`, loadingRoom(plan), unpacksFirst);
  }

  /** True if there are packed blocks that products read directly. */
  get readsPacked(): boolean {
    return this.packing?.product !== undefined;
  }

  /** Number of 4-byte values in all buffers. */
  get elements(): number {
    return this.buffers.reduce((sum, { bytes }) => sum + bytes / 4, 0);
  }

  has(label: string): boolean {
    return this.#views.has(label);
  }

  /** Returns the block with a label. Throws RangeError if it is missing. */
  view(label: string): View {
    const view = this.#views.get(label);
    if (!view) throw new RangeError(`The arena "${this.buffers[0].buffer.label}" has no block "${label}".`);
    return view;
  }

  /** Returns the parts of a table such as the embedding: one block with the label, or several chunks of rows. */
  chunks(label: string): RowChunk[] {
    const chunk = ({ label: name, size, width, parts }: Block): RowChunk => ({
      view: this.view(name),
      first: parts[0].rows?.first ?? 0,
      rows: size / width,
    });
    return this.blocks.filter(({ label: name }) => name === label || name.startsWith(`${label}.`)).map(chunk);
  }

  /**
   * Returns a view as matrix products need it: the view itself, or, if its block is packed, the values converted to
   * float32 in a scratch buffer that the next call overwrites.
   */
  float32(view: View): View {
    if (!view.packed) return view;
    const { format, elements: n } = view.packed;
    unpack(this.gpu, { packed: view, y: this.scratch.view, n, format });
    return this.scratch.view;
  }

  /**
   * Records y = x b, or x b^T, for a matrix b of this arena. If b is packed, the product itself converts it to float32
   * if possible.
   */
  product(args: MatmulArgs, transposed = false): void {
    if (args.b.packed && this.packing?.product) {
      const { turned = false } = args.b.packed;
      return this.packing.product(this.gpu, { ...args, transposed: transposed !== turned });
    }
    const b = this.float32(args.b);
    (transposed ? matmulNt : matmulNn)(this.gpu, b === args.b ? args : { ...args, b });
  }

  /**
   * Records y [M, N / 2] = silu(gate) * up for x b = [gate | up], if one kernel does both. Otherwise records nothing
   * and returns false.
   */
  gatedProduct(args: MatmulArgs): boolean {
    return !args.b.packed && gatedMatmul(this.gpu, args);
  }

  /** Copies host tensors to the device. Throws InputError that names a tensor if it is missing or has another shape. */
  importTensors(tensors: TensorMap): void {
    importTensors(this, tensors);
    this.refresh();
  }

  /** Copies weights to the device, piece by piece. Throws InputError if a tensor is missing or has another shape. */
  async importFrom(source: WeightSource): Promise<void> {
    await importFrom(this, source);
    this.refresh();
  }

  /** Copies tensors to the host. */
  exportTensors(): Promise<TensorMap> {
    return exportTensors(this);
  }

  /** Blocks by label, in the form that passes read. */
  get readBlocks(): ReadonlyMap<string, View> {
    return this.#views;
  }

  /** Called after an import or an optimizer has changed the values. */
  refresh(): void {}

  free(): void {
    for (const buffer of this.buffers) this.gpu.free(buffer);
    this.scratch.free();
  }

  #viewOf({ buffer, offset, size, format, isStored = false, parts }: Block): View {
    const view = this.gpu.slice(this.buffers[buffer], offset, blockBytes({ size, format }));
    if (format === 'half') return asHalves(view);
    const turned = isStored && !isTable(parts[0].name);
    return format ? { ...view, packed: { format, elements: size, ...(turned && { turned }) } } : view;
  }
}
