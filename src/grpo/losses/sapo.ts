import { clampedLogRatio, defineLoss } from './types.ts';

/** 1 / (1 + exp(-x)) without overflow. */
const sigmoid = (x: number): number => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));

/**
 * SAPO: a smooth gate instead of a clip,
 *
 *   l = -A (4 / tau) sigmoid(tau (r - 1)),   tau = tauPos where A > 0, otherwise tauNeg,   r = exp(clip(logp - oldLogp, -20, 20))
 *
 * At r = 1 the gradient equals that of plain policy gradient. Always aggregated by seq-mean-token-mean.
 */
export const sapo = defineLoss({
  paper: 'arXiv:2511.20347',
  zeroAtZeroAdvantage: true,
  aggregation: 'seq-mean-token-mean',
  numbers: { tauPos: 1.0, tauNeg: 1.05 },
  row({ tauPos, tauNeg }, token) {
    const { logRatio, passes } = clampedLogRatio(token);
    const ratio = Math.exp(logRatio);
    const a = token.advantage;
    const tau = a > 0 ? tauPos : tauNeg;
    const open = sigmoid(tau * (ratio - 1));
    const slope = open === 1 ? 0 : 4 * open * (1 - open) * ratio;
    return { loss: (-a * 4 * open) / tau, grad: passes ? -a * slope : 0, kl: -logRatio };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let ratio = exp(clamp(t.logRatio, -20.0, 20.0));
  let tau = select(params.tauNeg, params.tauPos, t.advantage > 0.0);
  // The sigmoid's derivative at x is tail / (1 + tail)^2 with tail = exp(-|x|), because it is even in x. No cancellation.
  let tail = exp(-min(abs(tau * (ratio - 1.0)), 80.0));
  let grad = -t.advantage * 4.0 * tail / ((1.0 + tail) * (1.0 + tail)) * ratio;
  return select(0.0, grad, abs(t.logRatio) <= 20.0);
}`,
});
