import { ALL_METRICS, clampedLogRatio, setting, type PolicyLoss } from './types.ts';

/** 1 / (1 + exp(-x)) without overflow. */
const sigmoid = (x: number): number => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));

/**
 * SAPO (arXiv:2511.20347): a smooth gate instead of a clip,
 *
 *   l = -A (4 / tau) sigmoid(tau (r - 1)),   tau = tauPos where A > 0, else tauNeg,   r = exp(clip(logp - oldLogp, -20, 20))
 *
 * Defaults tauPos 1.0, tauNeg 1.05. Its slope at r = 1 is that of plain policy gradient. Always aggregated by
 * seq-mean-token-mean.
 */
export const sapo: PolicyLoss = {
  reports: ALL_METRICS,
  aggregation: 'seq-mean-token-mean',
  row(spec, token) {
    const { logRatio, passes } = clampedLogRatio(token);
    const ratio = Math.exp(logRatio);
    const a = token.advantage;
    const tau = a > 0 ? setting(spec, 'tauPos', 1.0) : setting(spec, 'tauNeg', 1.05);
    const open = sigmoid(tau * (ratio - 1));
    const slope = open === 1 ? 0 : 4 * open * (1 - open) * ratio;
    return {
      loss: (-a * 4 * open) / tau,
      grad: passes ? -a * slope : 0,
      clipped: false,
      clippedLower: false,
      kl: -logRatio,
    };
  },
};
