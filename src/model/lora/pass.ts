/** The adapters' part of the forward and backward pass for one weight matrix. */

import type { Gpu, View } from '../../gpu/device.ts';
import { dropout } from '../../gpu/ops/dropout.ts';
import { loraUp, loraUpBwdB, loraUpBwdT } from '../../gpu/ops/lora_up.ts';
import { matmulNn, matmulNt, matmulTn } from '../../gpu/ops/matmul.ts';
import { type Lora, type LoraGroup, loraScale, loraWidths, type LoraWeights } from './weights.ts';
import type { ModelConfig } from '../config.ts';

/** Scratch buffers for the adapters' part of a pass; all matrices use the same ones in turn. */
export interface LoraScratch {
  /** [N, T] x A */ t: View;
  /** [N, I] dropout(x) in forward, the gradient of dropout's output in backward; only if dropout is on */ dropped?: View;
}

/** Like LoraScratch, for backward. */
interface LoraGradScratch {
  /** [N, T] */ dt: View;
}

/** A pass with its adapters on. If `dropKey` is undefined, the pass has no dropout, as in sampling and scoring. */
export interface LoraPass extends LoraScratch {
  lora: Lora;
  dropKey?: number | undefined;
}

/** Allocates the scratch buffers of adapters for up to `rows` rows. */
export function createLoraScratch(gpu: Gpu, config: ModelConfig, lora: Lora, rows: number): LoraScratch {
  const { T, I } = loraWidths(config, lora.config);
  const dropped = lora.config.dropout > 0 && gpu.buffer('lora.dropped', rows * I * 4);
  return { t: gpu.buffer('lora.t', rows * T * 4), ...(dropped && { dropped }) };
}

/** Records y += scale * (x A) B for the adapted modules of matrix `group`; x [N, I], y [N, Y]. */
export function recordLora(gpu: Gpu, pass: LoraPass, l: number, group: LoraGroup, x: View, y: View, N: number): void {
  const plan = pass.lora.groups.get(group);
  if (!plan) return;
  const { a, b } = pass.lora.weights.layers[l][group]!;
  const { rank: R } = pass.lora.config;
  const T = plan.modules.length * R;
  const input = droppedInput(gpu, pass, l, group, x, N * plan.I);
  matmulNn(gpu, { x: input, b: a, y: pass.t, M: N, N: T, K: plan.I });
  loraUp(gpu, { t: pass.t, b, y, N, R, Y: plan.Y, spans: plan.modules, scale: loraScale(pass.lora.config) });
}

/** Records the gradients of A and B, and adds the adapters' part to dx. x and dx [N, I], dy [N, Y]. */
export function recordLoraBackward(
  gpu: Gpu,
  pass: LoraPass & LoraGradScratch,
  grads: LoraWeights,
  l: number,
  group: LoraGroup,
  { x, dy, dx, N }: { x: View; dy: View; dx: View; N: number },
): void {
  const plan = pass.lora.groups.get(group);
  if (!plan) return;
  const { a, b } = pass.lora.weights.layers[l][group]!;
  const { a: da, b: db } = grads.layers[l][group]!;
  const { config } = pass.lora;
  const { I, Y, modules } = plan;
  const T = modules.length * config.rank;
  const shape = { N, R: config.rank, Y, spans: modules, scale: loraScale(config) };
  const input = droppedInput(gpu, pass, l, group, x, N * I);
  // x A is recomputed, because storing it for every matrix of every layer would take more memory than the saved time is
  // worth.
  matmulNn(gpu, { x: input, b: a, y: pass.t, M: N, N: T, K: I });
  loraUpBwdB(gpu, { t: pass.t, dy, db, ...shape });
  loraUpBwdT(gpu, { dy, b, dt: pass.dt, ...shape });
  matmulTn(gpu, { a: input, b: pass.dt, y: da, M: I, N: T, K: N });
  if (input === x) {
    matmulNt(gpu, { x: pass.dt, b: a, y: dx, M: N, N: I, K: T, accumulate: true });
    return;
  }
  matmulNt(gpu, { x: pass.dt, b: a, y: input, M: N, N: I, K: T });
  dropout(gpu, { x: input, y: dx, n: N * I, p: config.dropout, key: keyOf(pass, l, group), add: true });
}

function droppedInput(gpu: Gpu, pass: LoraPass, l: number, group: LoraGroup, x: View, n: number): View {
  if (pass.dropKey === undefined || !pass.dropped) return x;
  dropout(gpu, { x, y: pass.dropped, n, p: pass.lora.config.dropout, key: keyOf(pass, l, group) });
  return pass.dropped;
}

/** Random key of a dropout mask. Every matrix of every layer has its own mask; the modules in one matrix share it. */
function keyOf({ dropKey, lora }: LoraPass, l: number, group: LoraGroup): [number, number] {
  const place = l * 4 + ['qkv', 'o', 'gu', 'down'].indexOf(group);
  return [dropKey!, Math.imul(lora.config.seed, 0x9e3779b1) ^ place];
}
