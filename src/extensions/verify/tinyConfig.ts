import type { ModelConfig } from '../../model/config.ts';

/** A small model whose sizes are on purpose no multiples of a tile size. Tests on a GPU use it too. */
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
