/**
 * A Llama-family model on the device: weights, rotary table and adapters. Training, scoring and rollout use the same
 * one.
 */

import type { Gpu } from '../gpu/device.ts';
import type { View } from '../gpu/view.ts';
import { type ModelConfig, ropeTables } from './config.ts';
import { allocateLora, initLora, type Lora, type LoraConfig, LoraWeights } from './lora/weights.ts';
import type { Packing } from './weights/arena.ts';
import { GpuWeights, type MatrixForm } from './weights/gpuWeights.ts';
import type { StoredFormats } from './weights/plan.ts';

/** A model on the device, used by all passes. */
export interface LlamaModel {
  config: ModelConfig;
  weights: GpuWeights;
  /** [P, D] rotary table: cos | sin */
  rope: View;
  /** LoRA adapters; if present, the base weights are frozen. */
  lora?: Lora;
  /** Maximum bytes of a head table that is also kept as a transposed copy. Default: HEAD_COPY_BYTES of head.ts. */
  headCopyBytes?: number;
  /** True if products read and write 16-bit floats, except for the residual stream. */
  half: boolean;
}

export interface ModelOptions {
  /** Adapters that are trained instead of the weights. */
  lora?: LoraConfig | undefined;
  /** Storage form of the matrices. Default: 'trained'. */
  form?: MatrixForm | undefined;
  /** True to store activations as 16-bit floats; needs the WebGPU feature shader-f16. */
  half?: boolean | undefined;
  /**
   * Operations on packed formats, which are loaded only if needed. Required if `form` is a packed one, or if there are
   * `stored` formats.
   */
  packing?: Packing | undefined;
  /**
   * Packed formats of tensors that stay as they are in the file. Only if `form` is not set and only adapters are
   * trained.
   */
  stored?: StoredFormats | undefined;
}

/** Allocates the buffers of a model without their contents, for example to count the memory that it needs. */
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

/** Allocates a model whose weights must still be imported; its adapters are initialised. */
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
 * Allocates a copy of a model with separate buffers for the trained weights, which are empty; all other buffers are
 * shared. Training does not affect passes over the copy. If passes read 16-bit floats, the copy has only these, because
 * it is not trained.
 */
export function allocateCopy(gpu: Gpu, model: LlamaModel): LlamaModel {
  const { config, lora, half } = model;
  if (!lora) return { ...model, weights: new GpuWeights(gpu, config, 'rollout.weights', half ? 'half' : 'trained') };
  return { ...model, lora: { ...lora, weights: new LoraWeights(gpu, config, lora.config, 'rollout.lora') } };
}

/**
 * Returns the trained blocks of a model by label, as passes read them: the adapters if the model has some, otherwise
 * the weights.
 */
export const trainedBlocks = ({ weights, lora }: LlamaModel): ReadonlyMap<string, View> =>
  (lora?.weights ?? weights).readBlocks;

/** Records copies of the trained blocks to a model from `allocateCopy`. Returns the number of bytes. */
export function copyTrained(gpu: Gpu, from: LlamaModel, to: LlamaModel): number {
  const target = trainedBlocks(to);
  let bytes = 0;
  for (const [label, view] of trainedBlocks(from)) {
    gpu.copy(view, target.get(label)!, view.bytes);
    bytes += view.bytes;
  }
  return bytes;
}

/** Frees every buffer of a model. */
export function freeModel(gpu: Gpu, { weights, lora, rope }: LlamaModel): void {
  weights.free();
  lora?.weights.free();
  gpu.free(rope);
}

/** Returns the rotary table [P, D]: the cosines of a position, then its sines. */
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
