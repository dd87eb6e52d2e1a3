import { ALL_METRICS, clampedLogRatio, type PolicyLoss, type TokenRow } from './types.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';

/** Keeps the binary KL finite when a probability reaches 1. */
const EPSILON = 1e-8;

type Allowed = (spec: PolicyLossSpec, prob: number, oldProb: number, token: TokenRow) => boolean;

/** l = -A min(r, clipRatioC) logp where `allowed`, else 0; the ratio is held constant. */
function divergenceBounded(allowed: Allowed): PolicyLoss {
  return {
    reports: ALL_METRICS,
    row(spec, token) {
      const { logRatio } = clampedLogRatio(token);
      const ratio = Math.exp(logRatio);
      const kept = allowed(spec, Math.exp(token.logp), Math.exp(token.oldLogp), token);
      const grad = kept ? -token.advantage * Math.min(ratio, spec.clipRatioC) : 0;
      return {
        loss: grad * token.logp,
        grad,
        clipped: !kept,
        clippedLower: kept && ratio > spec.clipRatioC,
        kl: -logRatio,
      };
    },
  };
}

/**
 * DPPO-Binary-TV (arXiv:2602.04879): a token is dropped once its probability p has moved further than a threshold in
 * the direction its advantage pushes,
 *
 *   kept = p - pOld <= clipRatioHigh where A > 0, p - pOld >= -clipRatioLow elsewhere
 *
 * clipRatioLow / clipRatioHigh are thresholds on probabilities here, not on ratios. The paper truncates the ratio at
 * clipRatioC = 20; verl's actor config leaves it at 3.
 */
export const dppoTv = divergenceBounded((spec, p, pOld, { advantage }) =>
  advantage > 0 ? p - pOld <= spec.clipRatioHigh : p - pOld >= -spec.clipRatioLow,
);

/**
 * DPPO-Binary-KL (arXiv:2602.04879): as DPPO-Binary-TV, with the KL of the two-point distribution (this token, any
 * other) as the distance; a token whose probability moved against its advantage is always kept.
 */
export const dppoKl = divergenceBounded((spec, p, pOld, token) => {
  const kl = pOld * (token.oldLogp - token.logp) + (1 - pOld) * Math.log((1 - pOld + EPSILON) / (1 - p + EPSILON));
  if (token.advantage > 0) return kl <= spec.clipRatioHigh || p <= pOld;
  return kl <= spec.clipRatioLow || p >= pOld;
});
