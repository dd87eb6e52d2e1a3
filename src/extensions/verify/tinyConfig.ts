import type { ModelConfig } from '../../model/config.ts';

/** A model with odd sizes on purpose: none is a multiple of a tile. Tests on a GPU use it too. */
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
