/**
 * The optimizer of a run and its fixed settings, as plain data, so that they can be sent to a worker and used in a
 * memory estimate.
 */

/** Names of the optimizers, as in PyTorch (SignSGD: as in prime-rl). */
export const OPTIMIZERS = ['AdamW', 'SGD', 'SignSGD', 'Muon'] as const;
export type OptimizerName = (typeof OPTIMIZERS)[number];

/**
 * How Muon scales updates to the shape of a matrix, with the values of torch.optim.Muon: by sqrt(max(1, out / in)), or
 * by 0.2 sqrt(max(out, in)), with which AdamW's learning rates can be reused (arXiv:2502.16982).
 */
export const ADJUST_LR_FNS = ['original', 'match_rms_adamw'] as const;
export type AdjustLrFn = (typeof ADJUST_LR_FNS)[number];

/** Optimizer that updates the weights; docs/reference/algorithms.md has a table of them. */
export type OptimizerSpec =
  | { name: 'AdamW' | 'SignSGD' }
  | { name: 'SGD'; momentum: number; nesterov: boolean }
  | { name: 'Muon'; momentum: number; nesterov: boolean; adjustLrFn: AdjustLrFn };

/** Keys of `optim` that choose the optimizer. */
export interface OptimizerKeys {
  optimizer: OptimizerName;
  momentum?: number | undefined;
  nesterov?: boolean | undefined;
  adjustLrFn: AdjustLrFn;
}

/**
 * Returns the optimizer that a config sets, with torch's defaults: SGD without momentum, Muon with Nesterov momentum
 * 0.95.
 */
export function optimizerOf({ optimizer: name, momentum, nesterov, adjustLrFn }: OptimizerKeys): OptimizerSpec {
  if (name === 'SGD') return { name, momentum: momentum ?? 0, nesterov: nesterov ?? false };
  if (name === 'Muon') return { name, momentum: momentum ?? 0.95, nesterov: nesterov ?? true, adjustLrFn };
  return { name };
}
