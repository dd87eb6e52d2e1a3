/**
 * Buffers that the layers of a pass write. In training each layer has its own; in rollout all layers share one set.
 */

import type { Gpu } from '../gpu/device.ts';
import type { View } from '../gpu/view.ts';
import type { ModelConfig } from './config.ts';
import { createLoraScratch, type LoraScratch } from './lora/pass.ts';
import type { Lora } from './lora/weights.ts';

/** Buffers that one layer writes. */
export interface LayerActivations {
  /** [N, C] the layer's input */ x: View;
  /** [N, C] */ h1: View;
  /** [N] */ rstd1: View;
  /** [N, (H + 2K) * D] queries, keys and values before RoPE */ qkv: View;
  /** [N, (H + 2K) * D] after q/k norm (Qwen3); scratch that the layers share */ normed?: View;
  /** [N, H + K] */ qkRstd?: View;
  /** [N, H * D] queries after RoPE */ q: View;
  /** [rows, 2 * K * D] keys after RoPE, and values; the cache in rollout */ kv: View;
  /** [N, H * D] */ att: View;
  /** [N, H] */ lse: View;
  /** [N, C] after attention */ xMid: View;
  /** [N, C] */ h2: View;
  /** [N] */ rstd2: View;
  /** [N, 2F] */ gu: View;
  /** [N, F] */ act: View;
}

export interface Activations {
  /** Number of rows that the buffers hold. */
  capacity: number;
  layers: LayerActivations[];
  /** [N, C] output of the last layer, before the final norm */
  xOut: View;
  /**
   * True if layers share all buffers except their inputs, so that backward must compute each layer's forward pass
   * again.
   */
  checkpoint?: boolean;
  /** Scratch buffers of the LoRA adapters; undefined if the model has no adapters. */
  lora?: LoraScratch;
}

interface ActivationOptions {
  /** For rollout: caches of keys and values, one per layer. All layers then share the other buffers. */
  kvCaches?: View[];
  lora?: Lora | undefined;
  /** See LlamaModel. */
  half?: boolean;
  /**
   * For training with activation checkpointing: store only each layer's input, and compute the layer again in backward
   * (arXiv:1604.06174).
   */
  checkpoint?: boolean;
}

/**
 * Allocates activations for up to `capacity` rows. Without options every layer has its own buffers, as backward needs.
 */
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

/** Frees all activations of training. */
export function freeActivations(gpu: Gpu, activations: Activations): void {
  const views = new Map<GPUBuffer, View>([[activations.xOut.buffer, activations.xOut]]);
  for (const part of [...activations.layers, activations.lora ?? {}])
    for (const view of Object.values<View>(part)) views.set(view.buffer, view);
  for (const view of views.values()) gpu.free(view);
}
