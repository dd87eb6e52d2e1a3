/**
 * The forward pass over rows of tokens, recorded once for training, scoring, prefill and decoding alike. What differs is
 * only where keys and values go (`kvRows`, `kv`) and whether every layer has activations of its own (training) or all
 * share one set.
 */

import type { Gpu, View } from '../gpu/device.ts';
import { attention } from '../gpu/ops/attention.ts';
import { embed } from '../gpu/ops/embed.ts';
import { matmulNn } from '../gpu/ops/matmul.ts';
import { qkNorm } from '../gpu/ops/qk_norm.ts';
import { rmsnorm } from '../gpu/ops/rmsnorm.ts';
import { ropeKv } from '../gpu/ops/rope_kv.ts';
import { swiglu } from '../gpu/ops/swiglu.ts';
import type { ModelConfig } from './config.ts';
import { ropeTables } from './config.ts';
import { GpuWeights } from './gpuWeights.ts';

/** Input of a forward pass: N rows. Shapes as in PackedBatch. */
export interface RowViews {
  N: number;
  /** [N] */ tokens: View;
  /** [N] */ positions: View;
  /** [N] */ kvRows: View;
  /** [N, 4] */ ranges: View;
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
}

/** The model's device side that all passes share. */
export interface LlamaModel {
  config: ModelConfig;
  weights: GpuWeights;
  /** [P, D] cos | sin */
  rope: View;
}

export function createModel(gpu: Gpu, config: ModelConfig, maxPositions: number): LlamaModel {
  const { cos, sin } = ropeTables(config, maxPositions);
  const half = config.headDim / 2;
  const table = new Float32Array(maxPositions * config.headDim);
  for (let p = 0; p < maxPositions; p++) {
    table.set(cos.subarray(p * half, (p + 1) * half), p * config.headDim);
    table.set(sin.subarray(p * half, (p + 1) * half), p * config.headDim + half);
  }
  return { config, weights: new GpuWeights(gpu, config, 'weights'), rope: gpu.buffer('rope', table) };
}

/**
 * Activations for up to `capacity` rows. With `kvCaches` (rollout) all layers share one set and keys and values go to the
 * caches; without (training) every layer keeps its own.
 */
export function createActivations(gpu: Gpu, config: ModelConfig, capacity: number, kvCaches?: View[]): Activations {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const f32 = (label: string, width: number) => gpu.buffer(label, capacity * width * 4);
  const normed = config.qkNorm ? f32('act.normed', (H + 2 * K) * D) : undefined;
  const make = (l: number | 'shared', x: View, kv: View): LayerActivations => ({
    x,
    h1: f32(`act.${l}.h1`, C),
    rstd1: f32(`act.${l}.rstd1`, 1),
    qkv: f32(`act.${l}.qkv`, (H + 2 * K) * D),
    ...(normed && { normed, qkRstd: f32(`act.${l}.qkRstd`, H + K) }),
    q: f32(`act.${l}.q`, H * D),
    kv,
    att: f32(`act.${l}.att`, H * D),
    lse: f32(`act.${l}.lse`, H),
    xMid: f32(`act.${l}.xMid`, C),
    h2: f32(`act.${l}.h2`, C),
    rstd2: f32(`act.${l}.rstd2`, 1),
    gu: f32(`act.${l}.gu`, 2 * F),
    act: f32(`act.${l}.act`, F),
  });
  if (!kvCaches) {
    const layers = Array.from({ length: config.numHiddenLayers }, (_, l) =>
      make(l, f32(`act.${l}.x`, C), f32(`act.${l}.kv`, 2 * K * D)),
    );
    return { capacity, layers, xOut: f32('act.xOut', C) };
  }
  const [even, odd] = [f32('act.even', C), f32('act.odd', C)];
  const shared = make('shared', even, kvCaches[0]);
  const layers = kvCaches.map((kv, l) => ({ ...shared, kv, x: l % 2 === 0 ? even : odd }));
  return { capacity, layers, xOut: layers.length % 2 === 0 ? even : odd };
}

/** Bytes that createActivations takes a row, without caches. */
export function activationBytesPerRow(config: ModelConfig): number {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const layer = 4 * C + 2 + (H + 2 * K) * D + 2 * H * D + 2 * K * D + H + 3 * F;
  const [normed, qkRstd] = config.qkNorm ? [(H + 2 * K) * D, H + K] : [0, 0];
  return 4 * ((layer + qkRstd) * config.numHiddenLayers + normed + C);
}

/** Frees every buffer of a training set. */
export function freeActivations(gpu: Gpu, activations: Activations): void {
  const views = new Map<GPUBuffer, View>([[activations.xOut.buffer, activations.xOut]]);
  for (const layer of activations.layers)
    for (const view of Object.values(layer) as View[]) views.set(view.buffer, view);
  for (const view of views.values()) gpu.free(view);
}

/** Records the layers; afterwards `activations.xOut` holds the residual stream before the final norm, [N, C]. */
export function recordForward(gpu: Gpu, model: LlamaModel, rows: RowViews, activations: Activations): void {
  const { config, weights } = model;
  const N = rows.N;
  if (N > activations.capacity)
    throw new RangeError(`A pass of ${N} rows does not fit activations for ${activations.capacity}.`);
  embed(gpu, { tokens: rows.tokens, table: weights.views.embed, x: activations.layers[0].x, N, C: config.hiddenSize });
  activations.layers.forEach((a, l) => {
    const next = activations.layers[l + 1]?.x ?? activations.xOut;
    recordLayer(gpu, model, l, rows, a, next);
  });
}

function recordLayer(gpu: Gpu, model: LlamaModel, l: number, rows: RowViews, a: LayerActivations, xNext: View): void {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = model.config;
  const w = model.weights.views.layers[l];
  const { N, positions, kvRows, ranges } = rows;
  const eps = model.config.rmsNormEps;
  const qkvWidth = (H + 2 * K) * D;

  rmsnorm(gpu, { x: a.x, weight: w.attnNorm, y: a.h1, rstd: a.rstd1, N, C, eps });
  matmulNn(gpu, { x: a.h1, b: w.wqkv, bias: w.bqkv, y: a.qkv, M: N, N: qkvWidth, K: C });
  if (w.qkNorm && a.normed && a.qkRstd)
    qkNorm(gpu, { qkv: a.qkv, weight: w.qkNorm, y: a.normed, rstd: a.qkRstd, N, H, K, D, eps });
  ropeKv(gpu, { qkv: a.normed ?? a.qkv, positions, kvRows, table: model.rope, q: a.q, kv: a.kv, N, H, K, D });
  attention(gpu, { q: a.q, kv: a.kv, ranges, out: a.att, lse: a.lse, N, H, K, D });
  matmulNn(gpu, { x: a.att, b: w.wo, add: a.x, y: a.xMid, M: N, N: C, K: H * D });

  rmsnorm(gpu, { x: a.xMid, weight: w.mlpNorm, y: a.h2, rstd: a.rstd2, N, C, eps });
  matmulNn(gpu, { x: a.h2, b: w.wgu, y: a.gu, M: N, N: 2 * F, K: C });
  swiglu(gpu, { gu: a.gu, y: a.act, N, F });
  matmulNn(gpu, { x: a.act, b: w.wdown, add: a.xMid, y: xNext, M: N, N: C, K: F });
}
