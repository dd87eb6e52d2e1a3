/** Counts the dispatches of a step on a device that is not there, for a prediction of its seconds. */

import type { AdapterSummary, Gpu } from '../../gpu/device.ts';
import { PlannedGpu } from '../../gpu/plannedGpu.ts';
import { packIds } from '../../model/packing.ts';
import { WgslEngine } from '../../model/wgslEngine.ts';
import type { LlamaModel } from '../../model/llama.ts';
import { Decoder, type SlotSetup } from '../../rollout/decode/decoder.ts';
import { plannedModel, type Sizes } from '../../workers/memoryPlan.ts';
import { policyOptions, positionsOf } from '../../workers/modelOptions.ts';

/** Numbers of dispatches. Those of a policy loss, at most three per micro-batch, are not counted. */
export interface Dispatches {
  decodeStep: number;
  /** Forward and backward of a micro-batch of `maxTokenLen` rows. */
  microBatch: number;
  optimizerStep: number;
}

/** Counts dispatches instead of recording them, and reads back zeros. */
class CountingGpu extends PlannedGpu {
  override dispatch(_kernel: unknown, _buffers: unknown, _params: unknown, groups: number): void {
    if (groups > 0) this.counters.dispatches++;
  }
  override copy(): void {}
  override clear(): void {}
  override flush(): void {}
  override async readRanges(parts: { bytes: number }[]): Promise<ArrayBuffer[]> {
    return parts.map(({ bytes }) => new ArrayBuffer(bytes));
  }
}

/** Returns the dispatches of an engine of these sizes on that adapter, once all of its kernels are compiled. */
export async function countDispatches(sizes: Sizes, adapter: AdapterSummary): Promise<Dispatches> {
  const gpu = new CountingGpu(sizes.maxArenaBytes, adapter);
  return dispatchesOn(gpu, plannedModel(gpu, sizes.config, positionsOf(sizes), policyOptions(sizes)), sizes);
}

/** Like `countDispatches`, on a device. Changes the weights. */
export async function dispatchesOn(gpu: Gpu, model: LlamaModel, sizes: Sizes): Promise<Dispatches> {
  const { maxTokenLen, rollout, enableGradientCheckpointing, optimizer } = sizes;
  const of = async (work: () => unknown) => {
    const before = gpu.counters.dispatches;
    await work();
    return gpu.counters.dispatches - before;
  };
  const engine = new WgslEngine(gpu, model, maxTokenLen, { enableGradientCheckpointing, optimizer });
  const length = Math.min(positionsOf(sizes), maxTokenLen);
  const rows = Array.from({ length: Math.floor(maxTokenLen / length) }, () => new Uint32Array(length));
  const [{ batch }] = packIds(rows, maxTokenLen);
  const loss = { kind: 'nll', weights: new Float32Array(batch.targets.length) } as const;
  const microBatch = await of(() => engine.forwardBackward(batch, loss, { temperature: 1 }));
  const optimizerStep = await of(() => engine.optimizerStep(ADAMW));
  if (!rollout) return { decodeStep: 0, microBatch, optimizerStep };
  const decoder = new Decoder(gpu, model, rollout);
  const slots = Array.from({ length: rollout.maxNumSeqs }, (_, slot) => slot);
  for (const slot of slots) decoder.setSlot(slot, SLOT);
  decoder.setLive(slots);
  decoder.decodeStep(); // the first also prepares the head
  return { decodeStep: await of(() => decoder.decodeStep()), microBatch, optimizerStep };
}

const ADAMW = { lr: 0, beta1: 0, beta2: 0, eps: 1, weightDecay: 0, gradClip: 1 };
const SLOT: SlotSetup = {
  ...{ prefixStart: 0, promptLength: 1, ownStart: 0, contextIds: new Uint32Array(1), drawnBefore: 0, key: [0, 0] },
  sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens: 1, stopTokenIds: [] },
};
