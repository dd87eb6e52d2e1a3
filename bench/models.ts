/** The model and the batches that the benchmarks share. */

import type { Gpu } from '../src/gpu/device.ts';
import type { ModelConfig } from '../src/model/config.ts';
import type { PackedBatch, TrainLoss } from '../src/model/engine.ts';
import { createModel, type LlamaModel, type ModelOptions } from '../src/model/llama.ts';
import { packGroups, type SequenceGroup } from '../src/model/packing.ts';
import { initWeights } from '../src/model/params.ts';

/** The model of all headline figures: 0.92 M parameters. */
export const HEADLINE: ModelConfig = {
  architecture: 'LlamaForCausalLM',
  vocabSize: 512,
  hiddenSize: 128,
  intermediateSize: 384,
  numHiddenLayers: 4,
  numAttentionHeads: 4,
  numKeyValueHeads: 4,
  headDim: 32,
  rmsNormEps: 1e-6,
  ropeTheta: 10000,
  ropeScaling: null,
  maxPositionEmbeddings: 512,
  tieWordEmbeddings: true,
  qkvBias: false,
  qkNorm: false,
  initializerRange: 0.02,
};

export const ADAMW = { lr: 1e-4, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0.01, gradClip: 1 };

/** Returns the headline training batch's number of sequences and their length. */
export const trainShape = (quick: boolean): [number, number] => (quick ? [4, 32] : [16, 64]);

/** Creates a model with random weights. */
export function randomModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions = config.maxPositionEmbeddings,
  options?: ModelOptions,
): LlamaModel {
  const model = createModel(gpu, config, maxPositions, options);
  model.weights.importTensors(initWeights(config, 1));
  return model;
}

/** Returns token ids that are always the same, from a linear congruential generator. */
export function tokenIds(count: number, vocabulary: number, seed = 1): Uint32Array {
  let state = seed >>> 0;
  return Uint32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabulary);
  });
}

/** Returns plain sequences of `length` rows; every token after the first is predicted. */
export function plainBatch(sequences: number, length: number, vocabulary: number): PackedBatch {
  const groups = Array.from({ length: sequences }, (_, s): SequenceGroup => {
    const ids = tokenIds(length + 1, vocabulary, s + 1);
    return { prompt: ids.subarray(0, 1), samples: [sampleOf(ids.subarray(1))] };
  });
  return packOne(groups);
}

/** Packs groups into one micro-batch of any size. */
export function packOne(groups: SequenceGroup[]): PackedBatch {
  const rows = groups.reduce(
    (sum, g) => g.samples.reduce((s, { tokens }) => s + tokens.length, sum + g.prompt.length),
    0,
  );
  return packGroups(groups, rows)[0].batch;
}

export const sampleOf = (tokens: Uint32Array) => ({ tokens, mask: new Uint8Array(tokens.length).fill(1) });

/** Returns the mean negative log-likelihood as a loss of the engine. */
export function meanNll({ targets }: PackedBatch): TrainLoss {
  return { kind: 'nll', weights: new Float32Array(targets.length).fill(1 / targets.length) };
}
