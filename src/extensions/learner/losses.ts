/** Losses of Tinker's API that no training run here uses. Both are sums over tokens, as in Tinker. */

import { defineLoss, type PolicyLoss } from '../../grpo/losses/types.ts';

/** Loss -advantage * logp per token. The advantage is the token's weight. */
const crossEntropy = defineLoss({
  name: 'cross_entropy',
  reports: [],
  zeroAtZeroAdvantage: true,
  row: (_numbers, { logp, advantage }) => ({ loss: -advantage * logp, grad: -advantage }),
  wgsl: 'fn rowGrad(t: Token) -> f32 { return -t.advantage; }',
});

/** Loss -advantage * exp(logp - oldLogp) per token: importance sampling without clipping. */
const importanceSampling = defineLoss({
  name: 'importance_sampling',
  reports: ['actor/ppo_kl'],
  zeroAtZeroAdvantage: true,
  row(_numbers, { logp, oldLogp, advantage }) {
    const weighted = -advantage * Math.exp(logp - oldLogp);
    return { loss: weighted, grad: weighted };
  },
  wgsl: 'fn rowGrad(t: Token) -> f32 { return -t.advantage * exp(t.logRatio); }',
});

export const SUMMED_LOSSES: Readonly<Record<string, PolicyLoss>> = {
  cross_entropy: crossEntropy,
  importance_sampling: importanceSampling,
};
