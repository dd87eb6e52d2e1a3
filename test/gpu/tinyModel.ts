/** A tiny random model for tests of complete passes. */
import { type LlamaModel, createModel } from '../../src/model/llama.ts';
import type { ModelConfig } from '../../src/model/config.ts';
import type { Gpu } from '../../src/gpu/device.ts';
import { initWeights } from '../../src/model/params.ts';

export const tinyConfig: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 61,
  hiddenSize: 20,
  intermediateSize: 28,
  numHiddenLayers: 2,
  numAttentionHeads: 4,
  numKeyValueHeads: 2,
  headDim: 6,
  rmsNormEps: 1e-6,
  ropeTheta: 10000,
  ropeScaling: null,
  maxPositionEmbeddings: 128,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.3,
};

export function tinyModel(gpu: Gpu, change: Partial<ModelConfig> = {}, seed = 3): LlamaModel {
  const config = { ...tinyConfig, ...change };
  const model = createModel(gpu, config, 128);
  model.weights.importTensors(initWeights(config, seed));
  return model;
}
