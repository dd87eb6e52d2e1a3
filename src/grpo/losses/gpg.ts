import type { PolicyLoss } from './types.ts';

/**
 * GPG (arXiv:2504.02546): plain policy gradient, l = -A logp. No ratio, no clip, no metrics; its advantage (`gpg` in
 * advantages.ts) rescales by the share of samples with a reward.
 */
export const gpg: PolicyLoss = {
  reports: [],
  row: (_spec, token) => ({
    loss: -token.advantage * token.logp,
    grad: -token.advantage,
    clipped: false,
    clippedLower: false,
    kl: token.oldLogp - token.logp,
  }),
};
