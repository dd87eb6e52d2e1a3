/** A model on the device: weights, rotary table and adapters, which training, scoring and rollout share. */

import type { Gpu } from '../gpu/device.ts';
import type { View } from '../gpu/view.ts';
import { type ModelConfig, ropeTables } from './config.ts';
import { allocateLora, initLora, type Lora, type LoraConfig } from './lora/weights.ts';
import type { Packing } from './weights/arena.ts';
import { GpuWeights, type MatrixForm } from './weights/gpuWeights.ts';

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
  /** Needed where `form` is a packed one. */
  packing?: Packing | undefined;
}

/** The buffers of a model, nothing in them: what a plan of memory counts. */
export function allocateModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions: number,
  { lora, form, half = false, packing }: ModelOptions = {},
): LlamaModel {
  const weights = new GpuWeights(gpu, config, 'weights', form, packing);
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
