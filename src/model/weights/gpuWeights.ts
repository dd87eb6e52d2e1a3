/**
 * The only copy of the weights: an arena that rollout and training read, and that AdamW updates in place. A table
 * (embedding or head) larger than the device's binding limit is split by rows.
 *
 * Linear weights are stored transposed, [in, out], so that neighbouring threads of the forward product read
 * neighbouring columns. q, k and v are one matrix, gate and up another. Only `plan.ts` and `transfer.ts` know Hugging
 * Face names and layouts.
 */

import type { Gpu } from '../../gpu/device.ts';
import { cast } from '../../gpu/ops/cast.ts';
import type { RowChunk } from '../../gpu/ops/embed.ts';
import type { View } from '../../gpu/view.ts';
import type { ModelConfig } from '../config.ts';
import { Arena, type Packing } from './arena.ts';
import { halfCopy, type Kept, planBlocks, type StoredFormats } from './plan.ts';

interface LayerViews {
  /** [C] */ attnNorm: View;
  /** [C, (H + 2K) * D] weights of q, k and v */ wqkv: View;
  /** [(H + 2K) * D] biases of q, k and v */ bqkv?: View;
  /** [2, D] norm weights: row 0 of q, row 1 of k */ qkNorm?: View;
  /** [H * D, C] */ wo: View;
  /** [C] */ bo?: View;
  /** [C] */ mlpNorm: View;
  /** [C, 2F] */ wgu: View;
  /** [2F] */ bgu?: View;
  /** [F, C] */ wdown: View;
  /** [C] */ bdown?: View;
}

interface WeightViews {
  /** [V, C] */ embed: RowChunk[];
  layers: LayerViews[];
  /** [C] */ finalNorm: View;
  /** [V, C]; the same as embed when tied */ head: RowChunk[];
}

/**
 * Storage form of a model's matrices. With `trained` they are float32, and passes read them directly; with
 * `trainedHalf` passes read a copy in 16-bit floats.
 */
export type MatrixForm = Kept | 'trained' | 'trainedHalf';

/** Arena with the blocks of a model's config, for weights, gradients or an optimizer moment. */
export class GpuWeights extends Arena {
  /** The weights as passes read them. */
  readonly views: WeightViews;
  /** 16-bit copy of the matrices, which passes read. Undefined if passes read the weights themselves. */
  readonly #copy: { arena: Arena; labels: string[] } | undefined;

  /** @param packing required if `form` is a packed format, or if there are `stored` formats */
  constructor(
    gpu: Gpu,
    config: ModelConfig,
    label: string,
    form: MatrixForm = 'trained',
    packing?: Packing,
    stored?: StoredFormats,
  ) {
    const kept = form === 'trained' || form === 'trainedHalf' ? undefined : form;
    const plan = planBlocks(config, gpu.maxArenaBytes, kept, stored);
    super(gpu, plan, label, packing);
    if (form === 'trainedHalf') {
      const halves = halfCopy(plan, gpu.maxArenaBytes);
      const labels = halves.blocks.map((block) => block.label);
      this.#copy = { arena: new Arena(gpu, halves, `${label}.half`), labels };
    }
    const [arena, table] = [this.#copy?.arena, (name: string) => (this.#copy?.arena ?? this).chunks(name)];
    this.views = {
      embed: table('embed'),
      layers: Array.from({ length: config.numHiddenLayers }, (_, l) => layerViews(this, arena, l)),
      finalNorm: this.view('finalNorm'),
      head: table(config.tieWordEmbeddings ? 'embed' : 'head'),
    };
  }

  /** Allocates a buffer for n values of a matrix, in 16-bit floats if passes read those, otherwise in float32. */
  matrixBuffer(label: string, n: number): View {
    return this.views.layers[0].wqkv.half ? this.gpu.halves(label, n) : this.gpu.buffer(label, n * 4);
  }

  override get readBlocks(): ReadonlyMap<string, View> {
    return new Map([...super.readBlocks, ...(this.#copy?.arena.readBlocks ?? [])]);
  }

  /** Copies the weights, rounded to 16-bit floats, to the copy that passes read, if there is one. */
  override refresh(): void {
    if (!this.#copy) return;
    const { arena, labels } = this.#copy;
    for (const label of labels) {
      const [x, y] = [this.view(label), arena.view(label)];
      cast(this.gpu, { x, y, n: x.bytes / 4 });
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
