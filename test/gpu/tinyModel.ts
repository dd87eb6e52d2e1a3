/** A tiny random model for tests of complete passes. */
import { type LlamaModel, createModel } from '../../src/model/llama.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { Gpu } from '../../src/gpu/device.ts';
import { type LoraConfig, loraModules } from '../../src/model/lora/weights.ts';
import { initWeights } from '../../src/model/params.ts';
import { tinyConfig } from '../../src/extensions/verify/tinyConfig.ts';

export { tinyConfig };

export function tinyModel(gpu: Gpu, change: Partial<ModelConfig> = {}, seed = 3): LlamaModel {
  const config = { ...tinyConfig, ...change };
  const model = createModel(gpu, config, 128);
  model.weights.importTensors(initWeights(config, seed));
  return model;
}

/** Returns adapters of every linear module. */
export const loraOf = (rank: number, more: Partial<LoraConfig> = {}): LoraConfig => ({
  ...{ rank, alpha: 2 * rank, dropout: 0, useRslora: false, targetModules: loraModules('all-linear'), seed: 1 },
  ...more,
});
