/** Interface of every optimizer to `Optimizer`: its state, and how it turns gradients into an update. */

import type { Gpu, View } from '../../gpu/device.ts';
import type { OptimizerOptions } from '../engine.ts';
import type { Arena } from '../weights/arena.ts';

/** Inputs of a rule: the trained weights, their gradients, and the clip that `grad_clip.wgsl` wrote. */
export interface Trained {
  gpu: Gpu;
  weights: Arena;
  grads: Arena;
  /** [3] norm, scale, ok */
  clip: View;
  /** Makes an empty arena laid out as the weights. */
  like: (label: string) => Arena;
}

/** A step's numbers, without the clip, which has happened. */
export type RuleOptions = Omit<OptimizerOptions, 'gradClip' | 'optimizer'>;

export interface Rule {
  /** By the suffix of a tensor's name in a checkpoint, as PyTorch calls it; a rule without state has none. */
  states: ReadonlyMap<string, Arena>;
  /** Records the update of all weights, and clears the gradients. @param t steps, this one included: 1, 2, ... */
  update(t: number, options: RuleOptions): void;
  /** Frees what it owns beside `states`. */
  free?(): void;
}
