/**
 * Both ends of a transfer of trained weights from one device to another, bucket by bucket; verl's send_weights and
 * receive_weights.
 */

import { InputError } from '../../errors.ts';
import type { Gpu } from '../../gpu/device.ts';
import type { View } from '../../gpu/view.ts';
import { type LlamaModel, trainedBlocks } from '../llama.ts';
import { bucketCount, bucketParts, type WeightTensor } from './buckets.ts';

/** Options of a transfer. */
export interface SendOptions {
  /** Size of a bucket in bytes, a multiple of 4. */
  bucketBytes: number;
  /** delta = only the buckets whose bytes have changed since the last transfer. */
  content: 'whole' | 'delta';
  /** True if the receiver did not get the last transfer, so that all buckets must be sent. */
  afresh: boolean;
}

/** Device that trains. */
export interface WeightSender {
  /** Starts a transfer; resolves to the tensors whose values fill the buckets. */
  openSend(options: SendOptions): Promise<WeightTensor[]>;
  /**
   * Reads bucket k; returns undefined if it has not changed since the last transfer. The caller can transfer the
   * returned buffer to another thread. Weights must not be updated between two calls.
   */
  sendWeights(k: number): Promise<ArrayBuffer | undefined>;
}

/** Device that generates. */
export interface WeightReceiver {
  /**
   * Starts a transfer and drops an unfinished one. Throws InputError if the receiver's tensors have other names or
   * sizes.
   */
  openReceive(tensors: readonly WeightTensor[], bucketBytes: number): Promise<void>;
  /** Stores bucket k in addition to the weights in use. */
  receiveWeights(k: number, data: ArrayBuffer): Promise<void>;
  /**
   * Makes all received buckets the weights in use at a token boundary, as version `version`. Throws unless exactly
   * `count` buckets were received.
   */
  useWeights(version: number, count: number): Promise<void>;
  /** Drops received buckets; the weights in use stay as they are. */
  dropWeights(): Promise<void>;
}

const tensorsOf = (blocks: ReadonlyMap<string, View>): WeightTensor[] =>
  [...blocks].map(([name, { bytes }]) => ({ name, shape: [bytes / 4] }));

/** Sends weights. For delta transfers it keeps copies of the last sent buckets in host memory. */
export class DeviceSender implements WeightSender {
  readonly #gpu: Gpu;
  readonly #views: View[];
  readonly #tensors: WeightTensor[];
  #bucketBytes = 0;
  /** Last sent buckets by index, for delta transfers; undefined if every transfer sends all buckets. */
  #sent: Map<number, ArrayBuffer> | undefined;

  constructor(gpu: Gpu, model: LlamaModel) {
    const blocks = trainedBlocks(model);
    this.#gpu = gpu;
    this.#views = [...blocks.values()];
    this.#tensors = tensorsOf(blocks);
  }

  async openSend({ bucketBytes, content, afresh }: SendOptions): Promise<WeightTensor[]> {
    const known = afresh || bucketBytes !== this.#bucketBytes ? new Map<number, ArrayBuffer>() : this.#sent;
    this.#sent = content === 'delta' ? (known ?? new Map<number, ArrayBuffer>()) : undefined;
    this.#bucketBytes = bucketBytes;
    return this.#tensors;
  }

  async sendWeights(k: number): Promise<ArrayBuffer | undefined> {
    const parts = bucketParts(this.#tensors, this.#bucketBytes, k);
    const data = await this.#gpu.readTogether(
      parts.map(({ tensor, offset, bytes }) => ({ view: this.#views[tensor], offset, bytes })),
    );
    const before = this.#sent?.get(k);
    if (before && sameBytes(before, data)) return undefined;
    this.#sent?.set(k, data.slice());
    return data;
  }
}

/**
 * Stores received buckets until they become the weights in use. They wait in upload buffers in host memory, so rollout
 * continues with the old weights and the device needs no memory for a second set. Once all have arrived, only copies on
 * the device remain. A failed transfer changes nothing.
 */
export class DeviceReceiver implements WeightReceiver {
  readonly #gpu: Gpu;
  readonly #views: View[];
  readonly #tensors: WeightTensor[];
  readonly #changeWeights: (change: () => Promise<void>, version: number) => Promise<void>;
  #bucketBytes = 0;
  readonly #arrived = new Map<number, View>();

  /** @param changeWeights calls its argument `change` at a token boundary */
  constructor(
    gpu: Gpu,
    model: LlamaModel,
    changeWeights: (change: () => Promise<void>, version: number) => Promise<void>,
  ) {
    const blocks = trainedBlocks(model);
    this.#gpu = gpu;
    this.#views = [...blocks.values()];
    this.#tensors = tensorsOf(blocks);
    this.#changeWeights = changeWeights;
  }

  async openReceive(tensors: readonly WeightTensor[], bucketBytes: number): Promise<void> {
    await this.dropWeights();
    const text = ({ name, shape }: WeightTensor) => `${name} (${shape.join(' x ')} values)`;
    const other = this.#tensors.findIndex((tensor, i) => !tensors[i] || text(tensor) !== text(tensors[i]));
    if (other >= 0 || tensors.length !== this.#tensors.length) {
      const at = other >= 0 ? other : this.#tensors.length;
      const [own, sent] = [this.#tensors[at], tensors[at]].map((tensor) => (tensor ? text(tensor) : 'nothing more'));
      throw new InputError(
        `The weights that are sent have ${sent} where the rollout device has ${own}. Give both devices the same model and ` +
          'settings, and adapters that offer the same (shader-f16, bytes of a binding).',
      );
    }
    this.#bucketBytes = bucketBytes;
  }

  async receiveWeights(k: number, data: ArrayBuffer): Promise<void> {
    const expected = this.#parts(k).reduce((sum, { bytes }) => sum + bytes, 0);
    if (data.byteLength !== expected || expected === 0)
      throw new RangeError(`Bucket ${k} of the weights has ${data.byteLength} bytes instead of ${expected}.`);
    const before = this.#arrived.get(k);
    if (before) this.#gpu.freeUpload(before);
    this.#arrived.set(k, this.#gpu.upload('weights.arrived', data));
  }

  async useWeights(version: number, count: number): Promise<void> {
    if (this.#arrived.size !== count)
      throw new Error(
        `${this.#arrived.size} of ${count} buckets of weights have arrived; version ${version} is not used.`,
      );
    await this.#changeWeights(async () => {
      for (const [k, from] of this.#arrived) this.#place(k, from);
      await this.dropWeights();
      await this.#gpu.idle();
    }, version);
  }

  async dropWeights(): Promise<void> {
    for (const view of this.#arrived.values()) this.#gpu.freeUpload(view);
    this.#arrived.clear();
  }

  /** Records the copies from a bucket to its blocks. */
  #place(k: number, from: View): void {
    let at = 0;
    for (const { tensor, offset, bytes } of this.#parts(k)) {
      this.#gpu.copy(from, this.#views[tensor], bytes, at, offset);
      at += bytes;
    }
  }

  #parts(k: number) {
    if (!Number.isInteger(k) || k < 0 || k >= bucketCount(this.#tensors, this.#bucketBytes)) return [];
    return bucketParts(this.#tensors, this.#bucketBytes, k);
  }
}

function sameBytes(a: ArrayBuffer, b: ArrayBuffer): boolean {
  const [x, y] = [new Uint32Array(a), new Uint32Array(b)];
  if (x.length !== y.length) return false;
  for (let i = 0; i < x.length; i++) if (x[i] !== y[i]) return false; // `every` takes at least twice as long
  return true;
}
