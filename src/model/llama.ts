/** A model on the device: weights, rotary table and adapters, which training, scoring and rollout share. */

import type { Gpu } from '../gpu/device.ts';
import type { View } from '../gpu/view.ts';
import { type ModelConfig, ropeTables } from './config.ts';
import { allocateLora, initLora, type Lora, type LoraConfig, LoraWeights } from './lora/weights.ts';
import type { Packing } from './weights/arena.ts';
import { GpuWeights, type MatrixForm } from './weights/gpuWeights.ts';
import type { StoredFormats } from './weights/plan.ts';

/** A model on the device; all passes share it. */
export interface LlamaModel {
  config: ModelConfig;
  weights: GpuWeights;
  /** [P, D] cos | sin */
  rope: View;
  /** Adapters; the weights are then frozen. */
  lora?: Lora;
  /** Bytes of the largest table of the head that is kept transposed too; absent = HEAD_COPY_BYTES of head.ts. */
  headCopyBytes?: number;
  /** Products read and write 16-bit floats, all but the residual stream. */
  half: boolean;
}

export interface ModelOptions {
  /** Train adapters, and no weights. */
  lora?: LoraConfig | undefined;
  /** How the matrices are kept; absent = 'trained'. */
  form?: MatrixForm | undefined;
  /** Keep activations in 16-bit floats, which needs shader-f16. */
  half?: boolean | undefined;
  /** Needed where `form` is a packed one, or there are `stored` formats. */
  packing?: Packing | undefined;
  /** Tensors that stay packed as their file has them; only where `form` is absent and nothing but adapters is trained. */
  stored?: StoredFormats | undefined;
}

/** The buffers of a model, nothing in them: what a plan of memory counts. */
export function allocateModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions: number,
  { lora, form, half = false, packing, stored }: ModelOptions = {},
): LlamaModel {
  const weights = new GpuWeights(gpu, config, 'weights', form, packing, stored);
  const adapters = lora && { lora: allocateLora(gpu, config, lora) };
  return { config, weights, rope: gpu.buffer('rope', maxPositions * config.headDim * 4), ...adapters, half };
}

/** A model whose weights are still to be imported; its adapters are fresh ones. */
export function createModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions: number,
  options: ModelOptions = {},
): LlamaModel {
  const model = allocateModel(gpu, config, maxPositions, options);
  gpu.write(model.rope, ropeTable(config, maxPositions));
  model.lora?.weights.importTensors(initLora(config, model.lora.config));
  return model;
}

/**
 * A model with buffers of its own for what is trained, and the rest shared: passes that read it do not see training. Nothing is in
 * those buffers yet. It is read and not trained, so that of weights whose passes read halves it has the halves alone.
 */
export function allocateCopy(gpu: Gpu, model: LlamaModel): LlamaModel {
  const { config, lora, half } = model;
  if (!lora) return { ...model, weights: new GpuWeights(gpu, config, 'rollout.weights', half ? 'half' : 'trained') };
  return { ...model, lora: { ...lora, weights: new LoraWeights(gpu, config, lora.config, 'rollout.lora') } };
}

/** Trained blocks of a model by label, as passes read them: the adapters if it has some, else the weights. */
export const trainedBlocks = ({ weights, lora }: LlamaModel): ReadonlyMap<string, View> =>
  (lora?.weights ?? weights).readBlocks;

/** Records a copy of what is trained into a model that `allocateCopy` made of it; returns the bytes. */
export function copyTrained(gpu: Gpu, from: LlamaModel, to: LlamaModel): number {
  const target = trainedBlocks(to);
  let bytes = 0;
  for (const [label, view] of trainedBlocks(from)) {
    gpu.copy(view, target.get(label)!, view.bytes);
    bytes += view.bytes;
  }
  return bytes;
}

export function freeModel(gpu: Gpu, { weights, lora, rope }: LlamaModel): void {
  weights.free();
  lora?.weights.free();
  gpu.free(rope);
}

/** [P, D] cos | sin */
function ropeTable(config: ModelConfig, maxPositions: number): Float32Array {
  const { cos, sin } = ropeTables(config, maxPositions);
  const pairs = config.headDim / 2;
  const table = new Float32Array(maxPositions * config.headDim);
  for (let p = 0; p < maxPositions; p++) {
    table.set(cos.subarray(p * pairs, (p + 1) * pairs), p * config.headDim);
    table.set(sin.subarray(p * pairs, (p + 1) * pairs), p * config.headDim + pairs);
  }
  return table;
}
