/** A model on the device with its weights in place, or nothing: what fails half-way frees what it had taken. */

import type { Gpu } from '../gpu/device.ts';
import type { ModelConfig } from './config.ts';
import type { TensorMap } from './engine.ts';
import { createModel, type LlamaModel } from './forward.ts';
import type { MatrixForm } from './gpuWeights.ts';
import type { LoraConfig } from './loraConfig.ts';
import type { WeightSource } from './openCheckpoint.ts';

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
    if (weights instanceof Map) model.weights.importTensors(weights);
    else await model.weights.importFrom(weights);
    return model;
  } catch (error) {
    model.weights.free();
    model.lora?.weights.free();
    gpu.free(model.rope);
    throw error;
  }
}
