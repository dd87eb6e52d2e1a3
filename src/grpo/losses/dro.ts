import { setting, type PolicyLoss } from './types.ts';

/**
 * DRO, direct reward optimization (arXiv:2405.19107): policy gradient with a quadratic pull towards the old policy,
 *
 *   l = -(A logp - (droBeta / 2) (logp - oldLogp)^2)
 *
 * droBeta has no default and must be positive.
 */
export const dro: PolicyLoss = {
  reports: ['actor/ppo_kl'],
  row(spec, token) {
    const beta = setting(spec, 'droBeta', 0);
    if (!(beta > 0)) throw new RangeError(`Policy loss "dro" needs droBeta > 0, but it is ${beta}; try 0.1.`);
    const logRatio = token.logp - token.oldLogp;
    return {
      loss: -(token.logp * token.advantage - 0.5 * beta * logRatio * logRatio),
      grad: -token.advantage + beta * logRatio,
      clipped: false,
      clippedLower: false,
      kl: -logRatio,
    };
  },
};
