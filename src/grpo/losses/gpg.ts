import { defineLoss } from './types.ts';

/**
 * GPG: plain policy gradient, l = -A logp, without ratio, clip or metrics. Its advantage (`gpg` in
 * advantages/outcome.ts) rescales by the share of samples with a nonzero reward.
 */
export const gpg = defineLoss({
  paper: 'arXiv:2504.02546',
  zeroAtZeroAdvantage: true,
  reports: [],
  row: (_numbers, { advantage, logp }) => ({ loss: -advantage * logp, grad: -advantage }),
  wgsl: 'fn rowGrad(t: Token) -> f32 { return -t.advantage; }',
});
