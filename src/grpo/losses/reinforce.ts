import { clamp, LOG_RATIO_CLAMP, type PolicyLoss } from './types.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';

/** Truncated, constant importance weight exp(min(clip(x, -20, 20), log threshold)) of a log ratio x. */
function weightOf(spec: PolicyLossSpec, logRatio: number): number {
  const threshold = typeof spec.rolloutIsThreshold === 'number' ? spec.rolloutIsThreshold : 2;
  return Math.min(Math.exp(clamp(logRatio, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP)), threshold);
}

/**
 * REINFORCE with an importance weight, verl's bypass mode with loss_type 'reinforce': l = -w A logp, w held constant,
 *
 *   rolloutIs 'none'      w = 1
 *   rolloutIs 'token'     w = min(pi / piOld, rolloutIsThreshold)
 *   rolloutIs 'sequence'  w = min(prod_t pi_t / piOld_t, rolloutIsThreshold)      (default 'none', threshold 2)
 *
 * where piOld is the policy that sampled. Log ratios are clamped to +-20.
 */
export const reinforce: PolicyLoss = {
  reports: ['actor/ppo_kl'],
  sequenceTerm: (_spec, token) => token.logp - token.oldLogp,
  row(spec, token, sequence) {
    const logRatio = token.logp - token.oldLogp;
    const weight =
      spec.rolloutIs === 'token'
        ? weightOf(spec, logRatio)
        : spec.rolloutIs === 'sequence'
          ? weightOf(spec, sequence.sum)
          : 1;
    const grad = -weight * token.advantage;
    return { loss: grad * token.logp, grad, clipped: false, clippedLower: false, kl: -logRatio };
  },
};
