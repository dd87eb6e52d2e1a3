import { clampedLogRatio, defineLoss, type LossNumbers, type TokenLoss, type TokenRow } from './types.ts';

/** Bound on probabilities that keeps the binary KL finite when a probability reaches 1. */
const EPSILON = 1e-8;

/**
 * l = -A min(r, clipRatioC) logp if the token is kept (see the two losses below), otherwise 0. The ratio is held
 * constant.
 */
function keptOrDropped({ clipRatioC }: LossNumbers, token: TokenRow, kept: boolean): TokenLoss {
  const { logRatio } = clampedLogRatio(token);
  const ratio = Math.exp(logRatio);
  const grad = kept ? -token.advantage * Math.min(ratio, clipRatioC) : 0;
  return { loss: grad * token.logp, grad, clipped: !kept, clippedLower: kept && ratio > clipRatioC, kl: -logRatio };
}

/** WGSL in f32 of the row that both DPPO losses share. It calls `kept(p, pOld, t)`, which each loss appends to this text. */
const KEPT_OR_DROPPED = `
fn rowGrad(t: Token) -> f32 {
  let ratio = exp(clamp(t.logRatio, -20.0, 20.0));
  let moved = kept(exp(t.logp), exp(t.logp - t.logRatio), t);
  return select(0.0, -t.advantage * min(ratio, params.clipRatioC), moved);
}
`;

/**
 * DPPO-Binary-TV: a token is dropped once its probability p has moved further than a threshold in the direction its
 * advantage pushes,
 *
 *   kept = p - pOld <= clipRatioHigh where A > 0, p - pOld >= -clipRatioLow otherwise
 *
 * clipRatioLow / clipRatioHigh are thresholds on probabilities here, not on ratios. The paper truncates the ratio at
 * clipRatioC = 20; verl's actor config leaves it at 3.
 */
export const dppoTv = defineLoss({
  paper: 'arXiv:2602.04879',
  zeroAtZeroAdvantage: true,
  row(numbers, token) {
    const moved = Math.exp(token.logp) - Math.exp(token.oldLogp);
    const kept = token.advantage > 0 ? moved <= numbers.clipRatioHigh : moved >= -numbers.clipRatioLow;
    return keptOrDropped(numbers, token, kept);
  },
  wgsl: `${KEPT_OR_DROPPED}
fn kept(p: f32, pOld: f32, t: Token) -> bool {
  return select(p - pOld >= -params.clipRatioLow, p - pOld <= params.clipRatioHigh, t.advantage > 0.0);
}`,
});

/**
 * DPPO-Binary-KL: like DPPO-Binary-TV, with the KL of the two-point distribution (this token, any other) as the
 * distance. A token whose probability moved against its advantage is always kept.
 */
export const dppoKl = defineLoss({
  paper: 'arXiv:2602.04879',
  zeroAtZeroAdvantage: true,
  row(numbers, token) {
    const [p, pOld] = [Math.exp(token.logp), Math.exp(token.oldLogp)];
    const kl = pOld * (token.oldLogp - token.logp) + (1 - pOld) * Math.log((1 - pOld + EPSILON) / (1 - p + EPSILON));
    const up = token.advantage > 0;
    const kept = up ? kl <= numbers.clipRatioHigh || p <= pOld : kl <= numbers.clipRatioLow || p >= pOld;
    return keptOrDropped(numbers, token, kept);
  },
  wgsl: `${KEPT_OR_DROPPED}
fn kept(p: f32, pOld: f32, t: Token) -> bool {
  let kl = -pOld * t.logRatio + (1.0 - pOld) * log((1.0 - pOld + 1e-8) / (1.0 - p + 1e-8));
  return select(kl <= params.clipRatioLow || p >= pOld, kl <= params.clipRatioHigh || p <= pOld, t.advantage > 0.0);
}`,
});
