/**
 * Records the forward pass over rows of tokens; the same code serves training, scoring, prefill and decoding. They
 * differ in where keys and values are written (`kvRows`, `kv`), and in whether every layer has separate activations
 * (training) or all share one set.
 */

import type { Gpu, View } from '../gpu/device.ts';
import { addInto } from '../gpu/ops/add_into.ts';
import { attention, decodeForm } from '../gpu/ops/attention.ts';
import { embed } from '../gpu/ops/embed.ts';
import type { MatmulArgs } from '../gpu/ops/matmul.ts';
import { qkNorm } from '../gpu/ops/qk_norm.ts';
import { rmsnorm } from '../gpu/ops/rmsnorm.ts';
import { ropeKv } from '../gpu/ops/rope_kv.ts';
import { swiglu } from '../gpu/ops/swiglu.ts';
import type { Activations, LayerActivations } from './activations.ts';
import { type LoraPass, recordLora } from './lora/pass.ts';
import type { LlamaModel } from './llama.ts';
import type { GpuWeights } from './weights/gpuWeights.ts';

/** Input of a forward pass: N rows. Shapes as in PackedBatch. */
export interface RowViews {
  N: number;
  /** [N] */ tokens: View;
  /** [N] */ positions: View;
  /** [N] */ kvRows: View;
  /** [N, 4] */ ranges: View;
  /** True if every row belongs to a different sequence, as in a decode step. */ alone?: boolean;
}

export interface ForwardOptions {
  /** False to run only the base model without adapters, as for the reference policy. */
  adapters?: boolean;
  /** Enables dropout in the adapters, with masks computed from this random key. */
  dropKey?: number | undefined;
  /** True if no backward pass follows. Buffers that only the backward pass reads are then not written. */
  inference?: boolean;
}

/** Settings of the forward pass that each layer needs. */
interface LayerPass {
  adapters: LoraPass | undefined;
  inference?: boolean | undefined;
}

/** Records all layers. Afterwards `activations.xOut` holds the residual stream before the final norm, [N, C]. */
export function recordForward(
  gpu: Gpu,
  model: LlamaModel,
  rows: RowViews,
  activations: Activations,
  options: ForwardOptions = {},
): void {
  const { config, weights } = model;
  const N = rows.N;
  if (N > activations.capacity)
    throw new RangeError(`A pass of ${N} rows does not fit activations for ${activations.capacity}.`);
  embed(gpu, { tokens: rows.tokens, table: weights.views.embed, x: activations.layers[0].x, N, C: config.hiddenSize });
  const pass = { adapters: loraPass(model, activations, options), inference: options.inference };
  activations.layers.forEach((a, l) => {
    const next = activations.layers[l + 1]?.x ?? activations.xOut;
    recordLayer(gpu, model, l, rows, a, next, pass);
  });
}

/**
 * Returns the settings of the adapters in a pass; undefined if the model has no adapters or they are off.
 */
export function loraPass(
  { lora }: LlamaModel,
  activations: Activations,
  { adapters = true, dropKey }: ForwardOptions,
): LoraPass | undefined {
  if (!lora || !adapters) return undefined;
  if (!activations.lora) throw new Error('Activations were made without room for adapters, but the model has some.');
  return { lora, ...activations.lora, dropKey };
}

/** Records one layer. Without `xNext`, omits the layer's last product, which backward does not need. */
export function recordLayer(
  gpu: Gpu,
  model: LlamaModel,
  l: number,
  rows: RowViews,
  a: LayerActivations,
  xNext: View | undefined,
  { adapters, inference }: LayerPass,
): void {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = model.config;
  const { weights } = model;
  const w = weights.views.layers[l];
  const { N, positions, kvRows, ranges, alone } = rows;
  const eps = model.config.rmsNormEps;
  const qkvWidth = (H + 2 * K) * D;

  rmsnorm(gpu, { x: a.x, weight: w.attnNorm, y: a.h1, rstd: a.rstd1, N, C, eps });
  weights.product({ x: a.h1, b: w.wqkv, bias: w.bqkv, y: a.qkv, M: N, N: qkvWidth, K: C });
  if (adapters) recordLora(gpu, adapters, l, 'qkv', a.h1, a.qkv, N);
  if (w.qkNorm && a.normed && a.qkRstd)
    qkNorm(gpu, { qkv: a.qkv, weight: w.qkNorm, y: a.normed, rstd: a.qkRstd, N, H, K, D, eps });
  ropeKv(gpu, { qkv: a.normed ?? a.qkv, positions, kvRows, table: model.rope, q: a.q, kv: a.kv, N, H, K, D });
  attention(gpu, {
    q: a.q,
    kv: a.kv,
    ranges,
    out: a.att,
    lse: a.lse,
    N,
    H,
    K,
    D,
    form: alone ? decodeForm(gpu, D) : undefined,
  });
  productOnto(gpu, weights, a.x, { x: a.att, b: w.wo, bias: w.bo, y: a.xMid, M: N, N: C, K: H * D });
  if (adapters) recordLora(gpu, adapters, l, 'o', a.att, a.xMid, N);

  rmsnorm(gpu, { x: a.xMid, weight: w.mlpNorm, y: a.h2, rstd: a.rstd2, N, C, eps });
  const gateUp = { x: a.h2, b: w.wgu, M: N, N: 2 * F, K: C };
  const bare = !w.bgu && !adapters?.lora.groups.has('gu'); // no operation between the gate/up product and SwiGLU
  if (!(inference && bare && weights.gatedProduct({ ...gateUp, y: a.act }))) {
    weights.product({ ...gateUp, bias: w.bgu, y: a.gu });
    if (adapters) recordLora(gpu, adapters, l, 'gu', a.h2, a.gu, N);
    swiglu(gpu, { gu: a.gu, y: a.act, N, F });
  }
  if (!xNext) return;
  productOnto(gpu, weights, a.xMid, { x: a.act, b: w.wdown, bias: w.bdown, y: xNext, M: N, N: C, K: F });
  if (adapters) recordLora(gpu, adapters, l, 'down', a.act, xNext, N);
}

/**
 * Records y = residual + x b (+ bias). The matmul kernel adds only one term, so with a bias the residual is added by a
 * second kernel.
 */
function productOnto(gpu: Gpu, weights: GpuWeights, residual: View, { bias, ...args }: MatmulArgs): void {
  if (!bias) return weights.product({ ...args, add: residual });
  weights.product({ ...args, bias });
  addInto(gpu, { x: residual, y: args.y, n: args.M * args.N });
}
