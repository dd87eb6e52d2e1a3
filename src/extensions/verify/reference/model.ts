/**
 * The complete model and its optimizer in float64, built from the operations in ops.ts: the reference for both engines. Weights and
 * gradients have Hugging Face names.
 */

import { ropeTables64 } from '../../../model/config.ts';
import type { ModelConfig } from '../../../model/config.ts';
import type { OptimizerOptions, PackedBatch, TensorMap } from '../../../model/engine.ts';
import { parameterSpecs } from '../../../model/params.ts';
import * as ops from './ops.ts';

type F64 = Float64Array;
export type Weights64 = Map<string, F64>;

/** Converts weights to float64. */
export function toFloat64(weights: TensorMap): Weights64 {
  return new Map(Array.from(weights, ([name, { data }]) => [name, Float64Array.from(data)]));
}

/** Tensors of the forward pass that the backward pass of a layer reads. */
interface LayerCache {
  /** input of the layer [N, C] */ x: F64;
  normed1: { y: F64; rstd: F64 };
  /** q before its norm [N, H * D] */ qRaw: F64;
  /** k before its norm [N, K * D] */ kRaw: F64;
  /** reciprocal root mean square of q by head; empty without q/k norm */ qRstd: F64;
  kRstd: F64;
  /** q after its norm and RoPE */ q: F64;
  k: F64;
  v: F64;
  att: { out: F64; lse: F64 };
  /** residual stream after attention [N, C] */ mid: F64;
  normed2: { y: F64; rstd: F64 };
  /** gate projection [N, F] */ gate: F64;
  up: F64;
  act: F64;
}

interface ReferenceForward {
  /** natural log-probs [E] */ logProbs: F64;
  /** entropies in nats [E] */ entropy: F64;
  /** tensors that referenceBackward reads */
  cache: {
    layers: LayerCache[];
    /** residual stream after the last layer [N, C] */ x: F64;
    final: { y: F64; rstd: F64 };
    /** input of the head [R, C] */ headX: F64;
    lse: F64;
    rowEntropy: F64;
  };
}

/** Returns the log-probs and entropies of all scored tokens of the batch, at the given temperature. */
export function referenceForward(
  config: ModelConfig,
  weights: Weights64,
  batch: PackedBatch,
  { temperature = 1 }: { temperature?: number } = {},
): ReferenceForward {
  const w = (name: string) => weightOf(weights, name);
  const C = config.hiddenSize;
  let x = ops.embedding(w('model.embed_tokens.weight'), batch.tokens, C);
  const layers: LayerCache[] = [];
  for (let layer = 0; layer < config.numHiddenLayers; layer++) {
    const result = layerForward(config, (name) => weights.get(`model.layers.${layer}.${name}`), x, batch);
    layers.push(result.cache);
    x = result.y;
  }
  const final = ops.rmsnorm(x, w('model.norm.weight'), config.rmsNormEps);
  const headX = ops.embedding(final.y, batch.headRows, C);
  const { logProbs, entropy, lse, rowEntropy } = ops.head(headX, w(headName(config)), C, batch, temperature);
  return { logProbs, entropy, cache: { layers, x, final, headX, lse, rowEntropy } };
}

/**
 * Returns the gradients of a loss by parameter, from its derivatives with respect to the log-probs [E] and, optionally, the entropies [E].
 * The temperature must be that of the forward pass.
 */
export function referenceBackward(
  config: ModelConfig,
  weights: Weights64,
  batch: PackedBatch,
  forward: ReferenceForward,
  loss: { dLogProbs: ArrayLike<number>; dEntropy?: ArrayLike<number> },
  { temperature = 1 }: { temperature?: number } = {},
): Weights64 {
  const gradients: Weights64 = new Map(parameterSpecs(config).map(({ name }) => [name, new Float64Array(0)]));
  const w = (name: string) => weightOf(weights, name);
  const add = (name: string, gradient: F64) => {
    const old = gradients.get(name);
    gradients.set(name, old && old.length > 0 ? sum(old, gradient) : gradient);
  };
  const { layers, x, final, headX, lse, rowEntropy } = forward.cache;
  const C = config.hiddenSize;

  const headForward = { x: headX, weight: w(headName(config)), lse, rowEntropy };
  const fromHead = ops.headBwd(loss, headForward, C, batch, temperature);
  add(headName(config), fromHead.dweight);
  const dfinal = ops.embeddingBwd(fromHead.dx, batch.headRows, batch.tokens.length);
  const fromNorm = ops.rmsnormBwd(dfinal, x, w('model.norm.weight'), final.rstd);
  add('model.norm.weight', fromNorm.dweight);
  let dx = fromNorm.dx;
  for (let layer = config.numHiddenLayers - 1; layer >= 0; layer--) {
    const prefix = `model.layers.${layer}.`;
    const weight = (name: string) => weights.get(prefix + name);
    dx = layerBackward(config, weight, dx, layers[layer], batch, (name, gradient) => add(prefix + name, gradient));
  }
  add('model.embed_tokens.weight', ops.embeddingBwd(dx, batch.tokens, config.vocabSize));
  return gradients;
}

type LayerWeights = (name: string) => F64 | undefined;

/** One layer, x [N, C] -> y [N, C]: attention, then the MLP. Each is applied to a normalised input and added to the residual stream. */
function layerForward(config: ModelConfig, optional: LayerWeights, x: F64, batch: PackedBatch) {
  const { hiddenSize: C, intermediateSize: F, headDim: D, rmsNormEps: eps } = config;
  const w = (name: string) => required(optional(name), name);
  const linear = (name: string, input: F64, inSize: number) =>
    ops.linear(input, w(`${name}.weight`), inSize, optional(`${name}.bias`));
  const project = (name: string) => linear(`self_attn.${name}`, normed1.y, C);
  const tables = ropeOf(config, batch);

  const normed1 = ops.rmsnorm(x, w('input_layernorm.weight'), eps);
  const [qRaw, kRaw, v] = [project('q_proj'), project('k_proj'), project('v_proj')];
  const qNormed = headNorm(qRaw, optional('self_attn.q_norm.weight'), eps);
  const kNormed = headNorm(kRaw, optional('self_attn.k_norm.weight'), eps);
  const q = ops.rope(qNormed.y, batch.positions, tables, D);
  const k = ops.rope(kNormed.y, batch.positions, tables, D);
  const att = ops.attention(q, k, v, batch.ranges, attentionDims(config));
  const mid = sum(x, linear('self_attn.o_proj', att.out, config.numAttentionHeads * D));

  const normed2 = ops.rmsnorm(mid, w('post_attention_layernorm.weight'), eps);
  const gate = linear('mlp.gate_proj', normed2.y, C);
  const up = linear('mlp.up_proj', normed2.y, C);
  const act = ops.swiglu(gate, up);
  const y = sum(mid, linear('mlp.down_proj', act, F));
  const [qRstd, kRstd] = [qNormed.rstd, kNormed.rstd];
  const cache: LayerCache = { x, normed1, qRaw, kRaw, qRstd, kRstd, q, k, v, att, mid, normed2, gate, up, act };
  return { y, cache };
}

/** Backward pass of one layer, dy [N, C] -> dx [N, C]: the steps of layerForward in reverse order. Passes parameter gradients to `add`. */
function layerBackward(
  config: ModelConfig,
  optional: LayerWeights,
  dy: F64,
  cache: LayerCache,
  batch: PackedBatch,
  add: (name: string, gradient: F64) => void,
): F64 {
  const { hiddenSize: C, intermediateSize: F, headDim: D } = config;
  const w = (name: string) => required(optional(name), name);
  const linearBack = (name: string, dOut: F64, input: F64, inSize: number) => {
    const { dx, dweight, dbias } = ops.linearBwd(dOut, input, w(`${name}.weight`), inSize);
    add(`${name}.weight`, dweight);
    if (optional(`${name}.bias`)) add(`${name}.bias`, dbias);
    return dx;
  };
  const normBack = (name: string, dOut: F64, input: F64, rstd: F64) => {
    const { dx, dweight } = ops.rmsnormBwd(dOut, input, w(name), rstd);
    add(name, dweight);
    return dx;
  };

  const dact = linearBack('mlp.down_proj', dy, cache.act, F);
  const { dgate, dup } = ops.swigluBwd(dact, cache.gate, cache.up);
  const dnormed2 = sum(
    linearBack('mlp.gate_proj', dgate, cache.normed2.y, C),
    linearBack('mlp.up_proj', dup, cache.normed2.y, C),
  );
  const dmid = sum(dy, normBack('post_attention_layernorm.weight', dnormed2, cache.mid, cache.normed2.rstd));

  const dout = linearBack('self_attn.o_proj', dmid, cache.att.out, config.numAttentionHeads * D);
  const { q, k, v, att } = cache;
  const grads = ops.attentionBwd(dout, { q, k, v, ...att }, batch.ranges, attentionDims(config));
  const tables = ropeOf(config, batch);
  let dq = ops.ropeBwd(grads.dq, batch.positions, tables, D);
  let dk = ops.ropeBwd(grads.dk, batch.positions, tables, D);
  if (config.qkNorm) {
    dq = normBack('self_attn.q_norm.weight', dq, cache.qRaw, cache.qRstd);
    dk = normBack('self_attn.k_norm.weight', dk, cache.kRaw, cache.kRstd);
  }
  const dnormed1 = sum(
    linearBack('self_attn.q_proj', dq, cache.normed1.y, C),
    linearBack('self_attn.k_proj', dk, cache.normed1.y, C),
    linearBack('self_attn.v_proj', grads.dv, cache.normed1.y, C),
  );
  return sum(dmid, normBack('input_layernorm.weight', dnormed1, cache.x, cache.normed1.rstd));
}

function headNorm(x: F64, weight: F64 | undefined, eps: number): { y: F64; rstd: F64 } {
  return weight ? ops.rmsnorm(x, weight, eps) : { y: x, rstd: new Float64Array(0) };
}

function headName({ tieWordEmbeddings }: ModelConfig): string {
  return tieWordEmbeddings ? 'model.embed_tokens.weight' : 'lm_head.weight';
}

function attentionDims(config: ModelConfig): ops.AttentionDims {
  return { H: config.numAttentionHeads, K: config.numKeyValueHeads, D: config.headDim };
}

function ropeOf(config: ModelConfig, batch: PackedBatch): ops.RopeTables {
  return ropeTables64(config, batch.positions.reduce((a, b) => Math.max(a, b), 0) + 1);
}

function weightOf(weights: Weights64, name: string): F64 {
  return required(weights.get(name), name);
}

function required(weight: F64 | undefined, name: string): F64 {
  if (!weight) throw new RangeError(`The reference model was given no weight "${name}".`);
  return weight;
}

function sum(first: F64, ...rest: F64[]): F64 {
  return first.map((value, i) => rest.reduce((total, x) => total + x[i], value));
}

/** State of AdamW: number of updates, and both moments by parameter name. */
interface AdamWState {
  step: number;
  expAvg: Weights64;
  expAvgSq: Weights64;
}

/** Returns the state of AdamW before the first update. */
export function newAdamWState(weights: Weights64): AdamWState {
  const zeros = () => new Map(Array.from(weights, ([name, w]) => [name, new Float64Array(w.length)]));
  return { step: 0, expAvg: zeros(), expAvgSq: zeros() };
}

/**
 * Computes `torch.nn.utils.clip_grad_norm_`, then `torch.optim.AdamW` (arXiv:1711.05101). Changes weights and state in place. Weight decay
 * applies to all parameters, norms and biases included, as in verl's optimizer. Returns the gradient norm before clipping; if it is not
 * finite, changes nothing.
 */
export function referenceAdamW(
  weights: Weights64,
  gradients: Weights64,
  state: AdamWState,
  options: OptimizerOptions,
): number {
  const { lr, beta1, beta2, eps, weightDecay, gradClip } = options;
  let sumSq = 0;
  for (const gradient of gradients.values()) for (const g of gradient) sumSq += g * g;
  const norm = Math.sqrt(sumSq);
  if (!Number.isFinite(norm)) return norm;
  const scale = gradClip > 0 ? Math.min(1, gradClip / (norm + 1e-6)) : 1;
  state.step++;
  const correction1 = 1 - beta1 ** state.step;
  const correction2 = 1 - beta2 ** state.step;
  for (const [name, weight] of weights) {
    const [gradient, m, v] = [gradients, state.expAvg, state.expAvgSq].map((map) => weightOf(map, name));
    for (let i = 0; i < weight.length; i++) {
      const g = gradient[i] * scale;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      weight[i] *= 1 - lr * weightDecay;
      weight[i] -= ((lr / correction1) * m[i]) / (Math.sqrt(v[i] / correction2) + eps);
    }
  }
  return norm;
}
