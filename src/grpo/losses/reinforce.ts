import { clamp, defineLoss, LOG_RATIO_CLAMP, SEQUENCE_LOG_RATIO } from './types.ts';

/** Values of `rolloutIs`; a loss parameter is a number, so the formulas below use the index of the value. */
export const WEIGHT_LEVELS = ['none', 'token', 'sequence'] as const;

/**
 * REINFORCE with an importance weight, verl's bypass mode with loss_type 'reinforce': l = -w A logp, w held constant,
 *
 *   rolloutIs 0, 'none'      w = 1
 *   rolloutIs 1, 'token'     w = min(pi / piOld, rolloutIsThreshold)
 *   rolloutIs 2, 'sequence'  w = min(prod_t pi_t / piOld_t, rolloutIsThreshold)
 *
 * where piOld is the policy that sampled. Log ratios are clamped to +-20. If the loss applies the weights itself,
 * `algorithm.rolloutCorrection` sets its parameters `rolloutIs` and `rolloutIsThreshold`.
 */
export const reinforce = defineLoss({
  paper: "verl's bypass mode",
  zeroAtZeroAdvantage: true,
  reports: ['actor/ppo_kl'],
  numbers: { rolloutIs: 0, rolloutIsThreshold: 2 },
  sequenceTerm: SEQUENCE_LOG_RATIO,
  row({ rolloutIs, rolloutIsThreshold }, token, sequence) {
    const logWeight = rolloutIs === 2 ? sequence.sum : token.logp - token.oldLogp;
    const ratio = Math.exp(clamp(logWeight, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP));
    const weight = rolloutIs === 0 ? 1 : Math.min(ratio, rolloutIsThreshold);
    const grad = -weight * token.advantage;
    return { loss: grad * token.logp, grad };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  if (params.rolloutIs == 0.0) { return -t.advantage; }
  let logWeight = clamp(select(t.logRatio, t.sum, params.rolloutIs == 2.0), -20.0, 20.0);
  return -t.advantage * min(exp(logWeight), params.rolloutIsThreshold);
}`,
});
