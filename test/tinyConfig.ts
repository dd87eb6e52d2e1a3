import type { ModelConfig } from '../src/model/config.ts';

/** A tiny model with odd sizes, small enough for a float64 reference in a test. */
export const TINY_CONFIG: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 13,
  hiddenSize: 6,
  intermediateSize: 7,
  numHiddenLayers: 2,
  numAttentionHeads: 2,
  numKeyValueHeads: 1,
  headDim: 4,
  rmsNormEps: 1e-6,
  ropeTheta: 100,
  ropeScaling: null,
  maxPositionEmbeddings: 64,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.5,
};
