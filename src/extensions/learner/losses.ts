/** Tinker's named losses that a training run has no use for. Both are sums over tokens, as in Tinker. */

import { defineLoss, type PolicyLoss } from '../../grpo/losses/types.ts';

/** -advantage * logp. The advantage is the weight of the token. */
const crossEntropy = defineLoss({
  name: 'cross_entropy',
  reports: [],
  zeroAtZeroAdvantage: true,
  row: (_numbers, { logp, advantage }) => ({ loss: -advantage * logp, grad: -advantage }),
  wgsl: 'fn rowGrad(t: Token) -> f32 { return -t.advantage; }',
});

/** -advantage * exp(logp - oldLogp), without clipping. */
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
