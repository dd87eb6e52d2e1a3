/** Loads a model with its weights onto the device. If loading fails, everything allocated for it is freed. */

import type { Gpu } from '../../gpu/device.ts';
import type { preparePacked } from '../../gpu/ops/matmulPacked.ts';
import { PACKED_FORMATS } from '../../gpu/packedFormat.ts';
import type { ModelConfig } from '../config.ts';
import type { TensorMap } from '../engine.ts';
import { createModel, freeModel, type LlamaModel, type ModelOptions } from '../llama.ts';
import type { Packing } from './arena.ts';
import type { WeightSource } from '../checkpoint/open.ts';
import { readsPacked } from './plan.ts';

/** Source of the weights: in host memory, or read piece by piece. */
export type Weights = TensorMap | WeightSource;

/**
 * Returns a model with its weights. If reading fails, frees every buffer of the model and rethrows the error
 * (InputError for damaged weights).
 */
export async function loadModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions: number,
  weights: Weights,
  options: Omit<ModelOptions, 'packing'> = {},
): Promise<LlamaModel> {
  const stored = weights instanceof Map ? undefined : options.stored; // values in host memory are float32, not in the packed format of their file
  const used = new Set<string | undefined>([options.form, ...Object.values(stored ?? {})]);
  const formats = PACKED_FORMATS.filter((known) => used.has(known));
  const packing = formats.length > 0 ? await loadPacking(config) : undefined;
  const model = createModel(gpu, config, maxPositions, { ...options, stored, packing });
  try {
    const kernels = Promise.all(formats.map(async (format) => packing?.prepare?.(gpu, format)));
    if (weights instanceof Map) model.weights.importTensors(weights);
    else await Promise.all([model.weights.importFrom(weights), kernels]);
    await kernels;
    return model;
  } catch (error) {
    freeModel(gpu, model);
    throw error;
  }
}

/** Imports the code for packed weights. It is loaded on demand, because few models are packed. */
async function loadPacking(config: ModelConfig): Promise<Packing & { prepare?: typeof preparePacked }> {
  const { pack } = await import('../../gpu/ops/pack.ts');
  if (!readsPacked(config)) return { pack };
  const products = await import('../../gpu/ops/matmulPacked.ts');
  return { pack, product: products.matmulPacked, prepare: products.preparePacked };
}
