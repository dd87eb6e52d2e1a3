/** Which optimizer, and what of it is fixed for a run: plain data, so that it crosses to a worker and a plan can read it. */

/** Names as PyTorch has them (SignSGD: prime-rl). */
export const OPTIMIZERS = ['AdamW', 'SGD', 'SignSGD', 'Muon'] as const;
export type OptimizerName = (typeof OPTIMIZERS)[number];

/** torch.optim.Muon's: sqrt(max(1, out / in)), or 0.2 sqrt(max(out, in)), by which AdamW's rates carry over (arXiv:2502.16982). */
export const ADJUST_LR_FNS = ['original', 'match_rms_adamw'] as const;
export type AdjustLrFn = (typeof ADJUST_LR_FNS)[number];

/** Which optimizer updates the weights; docs/reference/algorithms.md has a table of them. */
export type OptimizerSpec =
  | { name: 'AdamW' | 'SignSGD' }
  | { name: 'SGD'; momentum: number; nesterov: boolean }
  | { name: 'Muon'; momentum: number; nesterov: boolean; adjustLrFn: AdjustLrFn };

/** The keys of `optim` that say so. */
export interface OptimizerKeys {
  optimizer: OptimizerName;
  momentum?: number | undefined;
  nesterov?: boolean | undefined;
  adjustLrFn: AdjustLrFn;
}

/** The optimizer of a config, with torch's defaults of its own: SGD without momentum, Muon with Nesterov's, 0.95. */
export function optimizerOf({ optimizer: name, momentum, nesterov, adjustLrFn }: OptimizerKeys): OptimizerSpec {
  if (name === 'SGD') return { name, momentum: momentum ?? 0, nesterov: nesterov ?? false };
  if (name === 'Muon') return { name, momentum: momentum ?? 0.95, nesterov: nesterov ?? true, adjustLrFn };
  return { name };
}
