/**
 * The forward pass over rows of tokens, recorded once for training, scoring, prefill and decoding alike. What differs is
 * only where keys and values go (`kvRows`, `kv`) and whether every layer has activations of its own (training) or all
 * share one set.
 */

import type { Gpu, View } from '../gpu/device.ts';
import { addInto } from '../gpu/ops/add_into.ts';
import { attention } from '../gpu/ops/attention.ts';
import { embed } from '../gpu/ops/embed.ts';
import type { MatmulArgs } from '../gpu/ops/matmul.ts';
import { qkNorm } from '../gpu/ops/qk_norm.ts';
import { rmsnorm } from '../gpu/ops/rmsnorm.ts';
import { ropeKv } from '../gpu/ops/rope_kv.ts';
import { swiglu } from '../gpu/ops/swiglu.ts';
import type { ModelConfig } from './config.ts';
import { ropeTables } from './config.ts';
import { GpuWeights, type MatrixForm } from './weights/gpuWeights.ts';
import { createLora, type Lora, type LoraConfig, loraWidths } from './lora/weights.ts';
import { createLoraScratch, type LoraPass, type LoraScratch, recordLora } from './lora/pass.ts';

/** Input of a forward pass: N rows. Shapes as in PackedBatch. */
export interface RowViews {
  N: number;
  /** [N] */ tokens: View;
  /** [N] */ positions: View;
  /** [N] */ kvRows: View;
  /** [N, 4] */ ranges: View;
  /** Every row is of another sequence, as in a decode step. */ alone?: boolean;
}

/** What one layer leaves behind. In training each layer has its own; in rollout all share one. */
export interface LayerActivations {
  /** [N, C] the layer's input */ x: View;
  /** [N, C] */ h1: View;
  /** [N] */ rstd1: View;
  /** [N, (H + 2K) * D] */ qkv: View;
  /** [N, (H + 2K) * D] after q/k norm (Qwen3); scratch that the layers share */ normed?: View;
  /** [N, H + K] */ qkRstd?: View;
  /** [N, H * D] rotated */ q: View;
  /** [rows, 2 * K * D] */ kv: View;
  /** [N, H * D] */ att: View;
  /** [N, H] */ lse: View;
  /** [N, C] after attention */ xMid: View;
  /** [N, C] */ h2: View;
  /** [N] */ rstd2: View;
  /** [N, 2F] */ gu: View;
  /** [N, F] */ act: View;
}

export interface Activations {
  /** Rows they hold. */
  capacity: number;
  layers: LayerActivations[];
  /** [N, C] output of the last layer */
  xOut: View;
  /** Layers share everything but their inputs: backward must run each layer again. */
  checkpoint?: boolean;
  /** Where the model has adapters. */
  lora?: LoraScratch;
}

/** The model's device side that all passes share. */
export interface LlamaModel {
  config: ModelConfig;
  weights: GpuWeights;
  /** [P, D] cos | sin */
  rope: View;
  /** Adapters; the weights are then frozen. */
  lora?: Lora;
  /** Bytes of the largest table of the head that is kept transposed too; absent = HEAD_COPY_BYTES of head.ts. */
  headCopyBytes?: number;
  /** What products read and write is kept in 16-bit floats, all but the residual stream. */
  half: boolean;
}

/** @param form how the matrices are kept; @param half keeps activations in 16-bit floats, which needs shader-f16 */
export function createModel(
  gpu: Gpu,
  config: ModelConfig,
  maxPositions: number,
  lora?: LoraConfig,
  form?: MatrixForm,
  half = false,
): LlamaModel {
  const { cos, sin } = ropeTables(config, maxPositions);
  const pairs = config.headDim / 2;
  const table = new Float32Array(maxPositions * config.headDim);
  for (let p = 0; p < maxPositions; p++) {
    table.set(cos.subarray(p * pairs, (p + 1) * pairs), p * config.headDim);
    table.set(sin.subarray(p * pairs, (p + 1) * pairs), p * config.headDim + pairs);
  }
  const weights = new GpuWeights(gpu, config, 'weights', form);
  const adapters = lora && { lora: createLora(gpu, config, lora) };
  return { config, weights, rope: gpu.buffer('rope', table), ...adapters, half };
}

export interface ActivationOptions {
  /** Rollout: keys and values go here, a cache a layer, and all layers share the rest. */
  kvCaches?: View[];
  lora?: Lora | undefined;
  /** See LlamaModel. */
  half?: boolean;
  /** Training: keep only each layer's input; backward runs the layer again (arXiv:1604.06174). */
  checkpoint?: boolean;
}

/** Activations for up to `capacity` rows. Without options every layer keeps its own, for backward. */
export function createActivations(
  gpu: Gpu,
  config: ModelConfig,
  capacity: number,
  { kvCaches, lora, half = false, checkpoint = false }: ActivationOptions = {},
): Activations {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const f32 = (label: string, width: number) => gpu.buffer(label, capacity * width * 4);
  const act = half ? (label: string, width: number) => gpu.halves(label, capacity * width) : f32;
  const normed = config.qkNorm ? act('act.normed', (H + 2 * K) * D) : undefined;
  const make = (l: number | 'shared', x: View, kv: View): LayerActivations => ({
    x,
    h1: act(`act.${l}.h1`, C),
    rstd1: f32(`act.${l}.rstd1`, 1),
    qkv: act(`act.${l}.qkv`, (H + 2 * K) * D),
    ...(normed && { normed, qkRstd: f32(`act.${l}.qkRstd`, H + K) }),
    q: act(`act.${l}.q`, H * D),
    kv,
    att: act(`act.${l}.att`, H * D),
    lse: f32(`act.${l}.lse`, H),
    xMid: f32(`act.${l}.xMid`, C),
    h2: act(`act.${l}.h2`, C),
    rstd2: f32(`act.${l}.rstd2`, 1),
    gu: act(`act.${l}.gu`, 2 * F),
    act: act(`act.${l}.act`, F),
  });
  const adapters = lora && { lora: createLoraScratch(gpu, config, lora, capacity) };
  const layerNumbers = Array.from({ length: config.numHiddenLayers }, (_, l) => l);
  if (!kvCaches && checkpoint) {
    const first = make('shared', f32('act.0.x', C), act('act.shared.kv', 2 * K * D));
    const layers = layerNumbers.map((l) => (l === 0 ? first : { ...first, x: f32(`act.${l}.x`, C) }));
    return { capacity, layers, xOut: f32('act.xOut', C), checkpoint, ...adapters };
  }
  if (!kvCaches) {
    const layers = layerNumbers.map((l) => make(l, f32(`act.${l}.x`, C), act(`act.${l}.kv`, 2 * K * D)));
    return { capacity, layers, xOut: f32('act.xOut', C), ...adapters };
  }
  const [even, odd] = [f32('act.even', C), f32('act.odd', C)];
  const shared = make('shared', even, kvCaches[0]);
  const layers = kvCaches.map((kv, l) => ({ ...shared, kv, x: l % 2 === 0 ? even : odd }));
  return { capacity, layers, xOut: layers.length % 2 === 0 ? even : odd, ...adapters };
}

/** Bytes that createActivations takes a row, without caches. */
export function activationBytesPerRow(
  config: ModelConfig,
  {
    lora,
    half = false,
    checkpoint = false,
  }: { lora?: LoraConfig | undefined; half?: boolean; checkpoint?: boolean } = {},
): number {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const act = half ? 0.5 : 1; // words a value
  const layer = 2 * C + 2 + H + act * (2 * C + (H + 2 * K) * D + 2 * H * D + 2 * K * D + 3 * F);
  const [normed, qkRstd] = config.qkNorm ? [act * (H + 2 * K) * D, H + K] : [0, 0];
  const inputs = checkpoint ? (config.numHiddenLayers - 1) * C : 0;
  const widths = lora ? loraWidths(config, lora) : { T: 0, I: 0 };
  const adapters = widths.T + (lora && lora.dropout > 0 ? widths.I : 0);
  return 4 * ((layer + qkRstd) * (checkpoint ? 1 : config.numHiddenLayers) + inputs + normed + adapters + C);
}

/** Frees every buffer of a training set. */
export function freeActivations(gpu: Gpu, activations: Activations): void {
  const views = new Map<GPUBuffer, View>([[activations.xOut.buffer, activations.xOut]]);
  for (const part of [...activations.layers, activations.lora ?? {}])
    for (const view of Object.values(part) as View[]) views.set(view.buffer, view);
  for (const view of views.values()) gpu.free(view);
}

export interface ForwardOptions {
  /** false = the base alone, as the reference policy is. */
  adapters?: boolean;
  /** Turns the adapters' dropout on; its masks follow from it. */
  dropKey?: number | undefined;
  /** No backward pass follows: what it alone would read need not be written. */
  inference?: boolean;
}

/** What of a pass its layers must know. */
interface LayerPass {
  adapters: LoraPass | undefined;
  inference?: boolean | undefined;
}

/** Records the layers; afterwards `activations.xOut` holds the residual stream before the final norm, [N, C]. */
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

/** The adapters' part of a pass; undefined where the model has none or they are off. */
export function loraPass(
  { lora }: LlamaModel,
  activations: Activations,
  { adapters = true, dropKey }: ForwardOptions,
): LoraPass | undefined {
  if (!lora || !adapters) return undefined;
  if (!activations.lora) throw new Error('Activations were made without room for adapters, but the model has some.');
  return { lora, ...activations.lora, dropKey };
}

/** Records a layer; without `xNext` all but its last product, which backward does not need. */
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
  attention(gpu, { q: a.q, kv: a.kv, ranges, out: a.att, lse: a.lse, N, H, K, D, form: alone ? 'alone' : undefined });
  productOnto(gpu, weights, a.x, { x: a.att, b: w.wo, bias: w.bo, y: a.xMid, M: N, N: C, K: H * D });
  if (adapters) recordLora(gpu, adapters, l, 'o', a.att, a.xMid, N);

  rmsnorm(gpu, { x: a.xMid, weight: w.mlpNorm, y: a.h2, rstd: a.rstd2, N, C, eps });
  const gateUp = { x: a.h2, b: w.wgu, M: N, N: 2 * F, K: C };
  const bare = !w.bgu && !adapters?.lora.groups.has('gu'); // nothing comes between the product and SwiGLU
  if (!(inference && bare && weights.gatedProduct({ ...gateUp, y: a.act }))) {
    weights.product({ ...gateUp, bias: w.bgu, y: a.gu });
    if (adapters) recordLora(gpu, adapters, l, 'gu', a.h2, a.gu, N);
    swiglu(gpu, { gu: a.gu, y: a.act, N, F });
  }
  if (!xNext) return;
  productOnto(gpu, weights, a.xMid, { x: a.act, b: w.wdown, bias: w.bdown, y: xNext, M: N, N: C, K: F });
  if (adapters) recordLora(gpu, adapters, l, 'down', a.act, xNext, N);
}

/** Records y = residual + x b (+ bias). The product takes one addend, so a bias needs a second pass. */
function productOnto(gpu: Gpu, weights: GpuWeights, residual: View, { bias, ...args }: MatmulArgs): void {
  if (!bias) return weights.product({ ...args, add: residual });
  weights.product({ ...args, bias });
  addInto(gpu, { x: residual, y: args.y, n: args.M * args.N });
}
