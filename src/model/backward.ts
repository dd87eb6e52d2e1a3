/** The backward pass over the rows of a packed batch: parameter gradients accumulate, activation gradients are written. */

import type { Gpu, View } from '../gpu/device.ts';
import { attentionBwd } from '../gpu/ops/attention.ts';
import { columnSum } from '../gpu/ops/column_sum.ts';
import { embedBwd } from '../gpu/ops/embed.ts';
import { matmulNn, matmulTn } from '../gpu/ops/matmul.ts';
import { qkNormBwd } from '../gpu/ops/qk_norm.ts';
import { RMSNORM_BLOCK_ROWS, rmsnormBwd } from '../gpu/ops/rmsnorm.ts';
import { ropeKvBwd } from '../gpu/ops/rope_kv.ts';
import { swigluBwd } from '../gpu/ops/swiglu.ts';
import { transpose } from '../gpu/ops/transpose.ts';
import type { Activations } from './activations.ts';
import { type ForwardOptions, loraPass, recordLayer, type RowViews } from './forward.ts';
import type { LlamaModel } from './llama.ts';
import type { GpuWeights } from './weights/gpuWeights.ts';
import { type LoraGroup, loraWidths, type LoraWeights } from './lora/weights.ts';
import { type LoraPass, recordLoraBackward } from './lora/pass.ts';

/** Gradients of one layer's activations; all layers use the same buffers, one after another. */
export interface BackwardScratch {
  /** [N, C] gradient of the layer's output, then of its input */ dx: View;
  /** [N, C] */ dxMid: View;
  /** [N, C] gradient of a norm's output */ dh: View;
  /** [N, F] */ dact: View;
  /** [N, 2F] */ dgu: View;
  /** [N, H * D] */ datt: View;
  /** [N, H * D] */ dq: View;
  /** [N, 2 * K * D] gradient of keys and values */ dkv: View;
  /** [N, H] */ delta: View;
  /** [N, (H + 2K) * D] gradient of the qkv product's output */ dqkv: View;
  /** [blocks, max(C, 2 * D)] partial sums of norm gradients, one row per block of rows */ partial: View;
  /**
   * Transposed copy of a weight matrix, written just before its use, with space for the largest one. Undefined if
   * products read packed matrices directly.
   */
  transposed?: View;
  /** [N, T] gradient of the adapters' x A, if the model has adapters; T = columns of A */ dt?: View;
}

/** Gradients of the trained parameters: every weight, or only the adapters. */
export type Gradients = { base: GpuWeights; lora?: undefined } | { lora: LoraWeights; base?: undefined };

/** Inputs of the backward pass in addition to those of the forward pass. */
interface BackwardRows extends RowViews {
  /** [N] */ queryEnd: View;
  /**
   * Rows sorted by token, for the embedding gradient: U distinct tokens, [U] ids, [U + 1] start of each token's rows,
   * [N] rows.
   */
  byToken: { U: number; ids: View; start: View; rows: View };
}

/** Allocates the scratch buffers of backward for up to `capacity` rows. */
export function createBackwardScratch(
  gpu: Gpu,
  { config, weights, lora }: LlamaModel,
  capacity: number,
): BackwardScratch {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = config;
  const f32 = (label: string, n: number) => gpu.buffer(`grad.${label}`, n * 4);
  return {
    dx: f32('dx', capacity * C),
    dxMid: f32('dxMid', capacity * C),
    dh: f32('dh', capacity * C),
    dact: f32('dact', capacity * F),
    dgu: f32('dgu', capacity * 2 * F),
    datt: f32('datt', capacity * H * D),
    dq: f32('dq', capacity * H * D),
    dkv: f32('dkv', capacity * 2 * K * D),
    delta: f32('delta', capacity * H),
    dqkv: f32('dqkv', capacity * (H + 2 * K) * D),
    partial: f32('partial', Math.ceil(capacity / RMSNORM_BLOCK_ROWS) * Math.max(C, 2 * D)),
    ...(!weights.readsPacked && {
      transposed: weights.matrixBuffer('grad.transposed', C * Math.max((H + 2 * K) * D, 2 * F)),
    }),
    ...(lora && { dt: f32('lora.dt', capacity * loraWidths(config, lora.config).T) }),
  };
}

/**
 * Records the backward pass of everything below the head. `scratch.dx` must hold the gradient of `activations.xOut`.
 * `options` must equal those of the forward pass.
 */
export function recordBackward(
  gpu: Gpu,
  model: LlamaModel,
  rows: BackwardRows,
  activations: Activations,
  scratch: BackwardScratch,
  grads: Gradients,
  options: ForwardOptions = {},
): void {
  const adapters = loraPass(model, activations, options);
  const last = activations.layers.length - 1;
  for (let l = last; l >= 0; l--) {
    // The activations of the last layer are still valid from the forward pass.
    if (activations.checkpoint && l < last)
      recordLayer(gpu, model, l, rows, activations.layers[l], undefined, { adapters });
    recordLayerBackward(gpu, model, l, rows, activations, scratch, grads, adapters);
  }
  if (!grads.base) return;
  const { U, ids, start, rows: sorted } = rows.byToken;
  const dtable = grads.base.views.embed;
  embedBwd(gpu, { ids, start, rows: sorted, dx: scratch.dx, dtable, U, C: model.config.hiddenSize });
}

function recordLayerBackward(
  gpu: Gpu,
  model: LlamaModel,
  l: number,
  rows: BackwardRows,
  activations: Activations,
  scratch: BackwardScratch,
  grads: Gradients,
  pass: LoraPass | undefined,
): void {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = model.config;
  const [a, w, dw] = [activations.layers[l], model.weights.views.layers[l], grads.base?.views.layers[l]];
  const { N, positions, ranges, queryEnd } = rows;
  const { partial } = scratch;
  const qkvWidth = (H + 2 * K) * D;
  /** Records dIn [N, I] = dOut [N, O] W, where W is stored as [I, O]. */
  const inputGradient = (dOut: View, weight: View, I: number, O: number, dIn: View) => {
    if (!scratch.transposed) return model.weights.product({ x: dOut, b: weight, y: dIn, M: N, N: I, K: O }, true);
    transpose(gpu, { x: model.weights.float32(weight), y: scratch.transposed, N: I, C: O });
    matmulNn(gpu, { x: dOut, b: scratch.transposed, y: dIn, M: N, N: I, K: O });
  };
  /** Records the gradient of a weight, or of the weight's adapters. Adapters also add to the input gradient dIn. */
  const weightGradient = (
    group: LoraGroup,
    x: View,
    dOut: View,
    dweight: View | undefined,
    I: number,
    O: number,
    dIn: View,
  ) => {
    if (dweight) matmulTn(gpu, { a: x, b: dOut, y: dweight, M: I, N: O, K: N });
    if (pass && grads.lora && scratch.dt)
      recordLoraBackward(gpu, { ...pass, dt: scratch.dt }, grads.lora, l, group, { x, dy: dOut, dx: dIn, N });
  };

  inputGradient(scratch.dx, w.wdown, F, C, scratch.dact);
  weightGradient('down', a.act, scratch.dx, dw?.wdown, F, C, scratch.dact);
  if (dw?.bdown) columnSum(gpu, { x: scratch.dx, y: dw.bdown, N, C });
  swigluBwd(gpu, { gu: a.gu, dy: scratch.dact, dgu: scratch.dgu, N, F });
  inputGradient(scratch.dgu, w.wgu, C, 2 * F, scratch.dh);
  weightGradient('gu', a.h2, scratch.dgu, dw?.wgu, C, 2 * F, scratch.dh);
  if (dw?.bgu) columnSum(gpu, { x: scratch.dgu, y: dw.bgu, N, C: 2 * F });
  const norm2 = { x: a.xMid, weight: w.mlpNorm, rstd: a.rstd2, dy: scratch.dh, dres: scratch.dx, dx: scratch.dxMid };
  rmsnormBwd(gpu, { ...norm2, dweight: dw?.mlpNorm, partial, N, C });

  inputGradient(scratch.dxMid, w.wo, H * D, C, scratch.datt);
  weightGradient('o', a.att, scratch.dxMid, dw?.wo, H * D, C, scratch.datt);
  if (dw?.bo) columnSum(gpu, { x: scratch.dxMid, y: dw.bo, N, C });
  const { dq, dkv, delta } = scratch;
  const views = { q: a.q, kv: a.kv, ranges, out: a.att, lse: a.lse, dout: scratch.datt, queryEnd, dq, dkv, delta };
  attentionBwd(gpu, { ...views, N, H, K, D });
  ropeKvBwd(gpu, { dq, dkv, positions, table: model.rope, dqkv: scratch.dqkv, N, H, K, D });
  if (w.qkNorm && a.qkRstd) {
    const norm = { qkv: a.qkv, weight: w.qkNorm, rstd: a.qkRstd, dqkv: scratch.dqkv, dweight: dw?.qkNorm, partial };
    qkNormBwd(gpu, { ...norm, N, H, K, D });
  }
  if (dw?.bqkv) columnSum(gpu, { x: scratch.dqkv, y: dw.bqkv, N, C: qkvWidth });
  inputGradient(scratch.dqkv, w.wqkv, C, qkvWidth, scratch.dh);
  weightGradient('qkv', a.h1, scratch.dqkv, dw?.wqkv, C, qkvWidth, scratch.dh);
  const norm1 = { x: a.x, weight: w.attnNorm, rstd: a.rstd1, dy: scratch.dh, dres: scratch.dxMid, dx: scratch.dx };
  rmsnormBwd(gpu, { ...norm1, dweight: dw?.attnNorm, partial, N, C });
}
