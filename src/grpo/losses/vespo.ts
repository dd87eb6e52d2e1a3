import { clamp, LOG_RATIO_CLAMP, setting, type PolicyLoss } from './types.ts';

/** log of the smallest sequence weight, 1e-8. */
const MIN_LOG_WEIGHT = Math.log(1e-8);

/**
 * VESPO (variational sequence-level soft policy optimization), as TRL computes it: l = -phi A logp, phi held constant, with
 *
 *   phi(w) = w^k exp(lambda (1 - w)),   log w = clip(sum_t clip(logp_t - oldLogp_t, -20, 20), log 1e-8, 20)
 *
 * over the trained tokens of the sequence; phi(1) = 1 and falls off on both sides. k, lambda are vespoKPos 2,
 * vespoLambdaPos 3 where A >= 0 and vespoKNeg 3, vespoLambdaNeg 2 elsewhere.
 */
export const vespo: PolicyLoss = {
  reports: ['actor/ppo_kl'],
  sequenceTerm: (_spec, token) => clamp(token.logp - token.oldLogp, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP),
  row(spec, token, sequence) {
    const good = token.advantage >= 0;
    const k = good ? setting(spec, 'vespoKPos', 2) : setting(spec, 'vespoKNeg', 3);
    const lambda = Math.max(good ? setting(spec, 'vespoLambdaPos', 3) : setting(spec, 'vespoLambdaNeg', 2), 1e-4);
    const logWeight = clamp(sequence.sum, MIN_LOG_WEIGHT, LOG_RATIO_CLAMP);
    const phi = Math.exp(lambda + k * logWeight - lambda * Math.exp(logWeight));
    const grad = -phi * token.advantage;
    return { loss: grad * token.logp, grad, clipped: false, clippedLower: false, kl: token.oldLogp - token.logp };
  },
};
