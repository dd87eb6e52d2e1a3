/** Interface between `Optimizer` and its update rules: a rule has a state and turns gradients into an update. */

import type { Gpu, View } from '../../gpu/device.ts';
import type { OptimizerOptions } from '../engine.ts';
import type { Arena } from '../weights/arena.ts';

/** Inputs of a rule: the trained weights, their gradients, and the clip factor that `grad_clip.wgsl` wrote. */
export interface Trained {
  gpu: Gpu;
  weights: Arena;
  grads: Arena;
  /** [3] norm, scale, ok */
  clip: View;
  /** Creates an empty arena with the layout of the weights. */
  like: (label: string) => Arena;
}

/** Options of a step without gradClip, because clipping has been done before the rule runs. */
export type RuleOptions = Omit<OptimizerOptions, 'gradClip' | 'optimizer'>;

export interface Rule {
  /**
   * State tensors of the rule, by the suffix of their names in a checkpoint, as in PyTorch; empty for a rule without
   * state.
   */
  states: ReadonlyMap<string, Arena>;
  /**
   * Records the update of all weights, and clears the gradients.
   * @param t number of steps including this one: 1, 2, ...
   */
  update(t: number, options: RuleOptions): void;
  /** Frees all buffers of the rule other than `states`. */
  free?(): void;
}
