/** A model on the device with its weights in place, or nothing: what fails half-way frees what it had taken. */

import type { Gpu } from '../../gpu/device.ts';
import { PACKED_FORMATS, type PackedFormat } from '../../gpu/packedFormat.ts';
import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { createModel, type LlamaModel } from '../forward.ts';
import type { MatrixForm } from './gpuWeights.ts';
import type { LoraConfig } from '../lora/config.ts';
import type { WeightSource } from '../checkpoint/open.ts';
import { readsPacked } from './plan.ts';

/** In host memory, or read piece by piece. */
export type Weights = TensorMap | WeightSource;

/** Throws what reading throws (InputError for damaged weights), with every buffer of the model freed. */
export async function loadModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions: number,
  weights: Weights,
  lora?: LoraConfig,
  form?: MatrixForm,
  half = false,
): Promise<LlamaModel> {
  const model = createModel(gpu, config, maxPositions, lora, form, half);
  try {
    const format = PACKED_FORMATS.find((known) => known === form);
    if (format) model.weights.pack = (await import('../../gpu/ops/pack.ts')).pack;
    const kernels = format && readsPacked(config) && loadPackedProduct(gpu, model, format);
    if (weights instanceof Map) model.weights.importTensors(weights);
    else await Promise.all([model.weights.importFrom(weights), kernels]);
    await kernels;
    return model;
  } catch (error) {
    model.weights.free();
    model.lora?.weights.free();
    gpu.free(model.rope);
    throw error;
  }
}

/** Its kernels are a fifth of all, and few models need them. */
async function loadPackedProduct(gpu: Gpu, { weights }: LlamaModel, format: PackedFormat): Promise<void> {
  const { matmulPacked, preparePacked } = await import('../../gpu/ops/matmulPacked.ts');
  await preparePacked(gpu, format);
  weights.packedProduct = matmulPacked;
}
