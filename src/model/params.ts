/** The parameters of a model: Hugging Face names, shapes and order, and initial values. */

import type { ModelConfig } from './config.ts';
import type { TensorMap } from './engine.ts';
import { mulberry32 } from './random.ts';

interface ParameterSpec {
  name: string;
  /** Shape in row-major order; a linear weight is [out, in], as in PyTorch. */
  shape: number[];
}

/** Returns every parameter, in the order of transformers' `named_parameters()`. */
export function parameterSpecs(config: ModelConfig): ParameterSpec[] {
  const { vocabSize: V, hiddenSize: C } = config;
  const specs: ParameterSpec[] = [{ name: 'model.embed_tokens.weight', shape: [V, C] }];
  for (let layer = 0; layer < config.numHiddenLayers; layer++) {
    for (const { name, shape } of layerSpecs(config)) specs.push({ name: `model.layers.${layer}.${name}`, shape });
  }
  specs.push({ name: 'model.norm.weight', shape: [C] });
  if (!config.tieWordEmbeddings) specs.push({ name: 'lm_head.weight', shape: [V, C] });
  return specs;
}

/** Returns the parameters of one layer, without the prefix `model.layers.<n>.`. */
function layerSpecs(config: ModelConfig): ParameterSpec[] {
  const { hiddenSize: C, intermediateSize: F, headDim: D } = config;
  const qSize = config.numAttentionHeads * D;
  const kvSize = config.numKeyValueHeads * D;
  const linear = (name: string, shape: [out: number, into: number], bias = false): ParameterSpec[] => [
    { name: `${name}.weight`, shape },
    ...(bias ? [{ name: `${name}.bias`, shape: [shape[0]] }] : []),
  ];
  const headNorms = ['self_attn.q_norm.weight', 'self_attn.k_norm.weight'].map((name) => ({ name, shape: [D] }));
  return [
    ...linear('self_attn.q_proj', [qSize, C], config.qkvBias),
    ...linear('self_attn.k_proj', [kvSize, C], config.qkvBias),
    ...linear('self_attn.v_proj', [kvSize, C], config.qkvBias),
    ...linear('self_attn.o_proj', [C, qSize], config.oBias),
    ...(config.qkNorm ? headNorms : []),
    ...linear('mlp.gate_proj', [F, C], config.mlpBias),
    ...linear('mlp.up_proj', [F, C], config.mlpBias),
    ...linear('mlp.down_proj', [C, F], config.mlpBias),
    { name: 'input_layernorm.weight', shape: [C] },
    { name: 'post_attention_layernorm.weight', shape: [C] },
  ];
}

/** Returns the number of elements of a shape. */
export function elementCount(shape: number[]): number {
  return shape.reduce((product, size) => product * size, 1);
}

/** Returns the number of trained scalars; a head that is tied to the embedding is not counted again. */
export function parameterCount(config: ModelConfig): number {
  return parameterSpecs(config).reduce((sum, { shape }) => sum + elementCount(shape), 0);
}

/**
 * Initialises weights like transformers: normal(0, initializerRange), norms one, biases zero. Each tensor has its own
 * random stream keyed by (seed, name), so a deeper model starts with the same first layers.
 */
export function initWeights(config: ModelConfig, seed: number): TensorMap {
  const weights: TensorMap = new Map();
  for (const { name, shape } of parameterSpecs(config)) {
    const data = new Float32Array(elementCount(shape));
    if (name.endsWith('norm.weight')) data.fill(1);
    else if (name.endsWith('.weight')) fillNormal(data, config.initializerRange, streamKey(seed, name));
    weights.set(name, { shape, data });
  }
  return weights;
}

/** Fills an array with normally distributed numbers: Box-Muller on a mulberry32 stream. */
function fillNormal(data: Float32Array, scale: number, key: number): void {
  const uniform = mulberry32(key);
  for (let i = 0; i < data.length; i++) {
    data[i] = scale * Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  }
}

/** Fills an array with uniform numbers in [-bound, bound], from the stream of (seed, name). */
export function fillUniform(data: Float32Array, bound: number, seed: number, name: string): void {
  const uniform = mulberry32(streamKey(seed, name));
  for (let i = 0; i < data.length; i++) data[i] = bound * (2 * uniform() - 1);
}

/** Hash of (seed, name): FNV-1a over the name, starting from the seed. */
function streamKey(seed: number, name: string): number {
  let hash = 0x811c9dc5 ^ Math.imul(seed, 0x9e3779b1);
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
  return hash;
}
