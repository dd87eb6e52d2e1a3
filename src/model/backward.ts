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
import type { ModelConfig } from './config.ts';
import type { Activations, LlamaModel, RowViews } from './forward.ts';
import type { GpuWeights } from './gpuWeights.ts';

/** Gradients of one layer's activations; every layer uses the same ones in turn. */
export interface BackwardScratch {
  /** [N, C] gradient of the layer's output, then of its input */ dx: View;
  /** [N, C] */ dxMid: View;
  /** [N, C] gradient of a norm's output */ dh: View;
  /** [N, F] */ dact: View;
  /** [N, 2F] */ dgu: View;
  /** [N, H * D] */ datt: View;
  /** [N, H * D] */ dq: View;
  /** [N, 2 * K * D] */ dkv: View;
  /** [N, H] */ delta: View;
  /** [N, (H + 2K) * D] */ dqkv: View;
  /** [blocks, max(C, 2 * D)] */ partial: View;
  /** The largest weight matrix, transposed just before its use. */ transposed: View;
}

/** What backward needs beside the rows that went forward. */
export interface BackwardRows extends RowViews {
  /** [N] */ queryEnd: View;
  /** Distinct tokens U, [U] ids, [U + 1] start, [N] rows sorted by token. */
  byToken: { U: number; ids: View; start: View; rows: View };
}

export function createBackwardScratch(gpu: Gpu, config: ModelConfig, capacity: number): BackwardScratch {
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
    transposed: f32('transposed', C * Math.max((H + 2 * K) * D, 2 * F)),
  };
}

/** Records everything below the head; `scratch.dx` must hold the gradient of `activations.xOut`. */
export function recordBackward(
  gpu: Gpu,
  model: LlamaModel,
  rows: BackwardRows,
  activations: Activations,
  scratch: BackwardScratch,
  grads: GpuWeights,
): void {
  for (let l = activations.layers.length - 1; l >= 0; l--)
    recordLayer(gpu, model, l, rows, activations, scratch, grads);
  const { U, ids, start, rows: sorted } = rows.byToken;
  embedBwd(gpu, { ids, start, rows: sorted, dx: scratch.dx, dtable: grads.views.embed, U, C: model.config.hiddenSize });
}

function recordLayer(
  gpu: Gpu,
  model: LlamaModel,
  l: number,
  rows: BackwardRows,
  activations: Activations,
  s: BackwardScratch,
  grads: GpuWeights,
): void {
  const { hiddenSize: C, intermediateSize: F, headDim: D, numAttentionHeads: H, numKeyValueHeads: K } = model.config;
  const [a, w, dw] = [activations.layers[l], model.weights.views.layers[l], grads.views.layers[l]];
  const { N, positions, ranges, queryEnd } = rows;
  const { partial } = s;
  const qkvWidth = (H + 2 * K) * D;
  /** dIn [N, I] = dOut [N, O] W, for W kept as [I, O]. */
  const through = (dOut: View, weight: View, I: number, O: number, dIn: View) => {
    transpose(gpu, { x: weight, y: s.transposed, N: I, C: O });
    matmulNn(gpu, { x: dOut, b: s.transposed, y: dIn, M: N, N: I, K: O });
  };

  through(s.dx, w.wdown, F, C, s.dact);
  matmulTn(gpu, { a: a.act, b: s.dx, y: dw.wdown, M: F, N: C, K: N });
  swigluBwd(gpu, { gu: a.gu, dy: s.dact, dgu: s.dgu, N, F });
  through(s.dgu, w.wgu, C, 2 * F, s.dh);
  matmulTn(gpu, { a: a.h2, b: s.dgu, y: dw.wgu, M: C, N: 2 * F, K: N });
  const norm2 = { x: a.xMid, weight: w.mlpNorm, rstd: a.rstd2, dy: s.dh, dres: s.dx, dx: s.dxMid };
  rmsnormBwd(gpu, { ...norm2, dweight: dw.mlpNorm, partial, N, C });

  through(s.dxMid, w.wo, H * D, C, s.datt);
  matmulTn(gpu, { a: a.att, b: s.dxMid, y: dw.wo, M: H * D, N: C, K: N });
  const { dq, dkv, delta } = s;
  const views = { q: a.q, kv: a.kv, ranges, out: a.att, lse: a.lse, dout: s.datt, queryEnd, dq, dkv, delta };
  attentionBwd(gpu, { ...views, N, H, K, D });
  ropeKvBwd(gpu, { dq, dkv, positions, table: model.rope, dqkv: s.dqkv, N, H, K, D });
  if (w.qkNorm && dw.qkNorm && a.qkRstd) {
    const norm = { qkv: a.qkv, weight: w.qkNorm, rstd: a.qkRstd, dqkv: s.dqkv, dweight: dw.qkNorm, partial };
    qkNormBwd(gpu, { ...norm, N, H, K, D });
  }
  if (dw.bqkv) columnSum(gpu, { x: s.dqkv, y: dw.bqkv, N, C: qkvWidth });
  through(s.dqkv, w.wqkv, C, qkvWidth, s.dh);
  matmulTn(gpu, { a: a.h1, b: s.dqkv, y: dw.wqkv, M: C, N: qkvWidth, K: N });
  const norm1 = { x: a.x, weight: w.attnNorm, rstd: a.rstd1, dy: s.dh, dres: s.dxMid, dx: s.dx };
  rmsnormBwd(gpu, { ...norm1, dweight: dw.attnNorm, partial, N, C });
}
