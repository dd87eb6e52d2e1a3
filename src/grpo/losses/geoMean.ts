import { clamp, defineLoss, type LossNumbers, type TokenRow } from './types.ts';

/** Constant that verl adds to denominators, so that sequences without a trained token have verl's values. */
const EPSILON = 1e-8;

/**
 * Log ratio of a token after clipping in log space on one side: the upper for a positive advantage, the lower for a
 * negative one.
 */
function clippedLogRatio({ clipRatioLow, clipRatioHigh }: LossNumbers, token: TokenRow): number {
  const raw = token.logp - token.oldLogp;
  const bounded = clamp(raw, -clipRatioLow, clipRatioHigh);
  const sign = Math.sign(token.advantage);
  return sign * Math.min(sign * raw, sign * bounded);
}

/**
 * GMPO, verl's `geo_mean`: a geometric instead of an arithmetic mean of the token ratios,
 *
 *   L_s = -A_s exp(mean_t k_t),   k_t = sgn(A) min(sgn(A) d_t, sgn(A) clip(d_t, -clipRatioLow, clipRatioHigh)),
 *   d_t = logp_t - oldLogp_t (never clamped),   A_s = mean advantage of the sequence
 *
 * averaged over all sequences of the mini-batch, including those without a trained token ('seq-geo-mean'). The clip
 * range is in log space; the paper's is 0.4. As a row: l_t = -A_t R_s, g_t = -A_s R_s if k_t was not clipped.
 */
export const geoMean = defineLoss({
  paper: 'arXiv:2507.20673',
  zeroAtZeroAdvantage: true,
  aggregation: 'seq-geo-mean',
  sequenceTerm: {
    of: clippedLogRatio,
    wgsl: `
fn sequenceTerm(logRatio: f32, advantage: f32) -> f32 {
  if (advantage > 0.0) { return min(logRatio, params.clipRatioHigh); }
  if (advantage < 0.0) { return max(logRatio, -params.clipRatioLow); }
  return 0.0;
}`,
  },
  row(numbers, token, sequence) {
    const raw = token.logp - token.oldLogp;
    const ratio = Math.exp(sequence.sum / (sequence.length + EPSILON));
    const advantage = sequence.advantageSum / (sequence.length + EPSILON);
    const outside = clamp(raw, -numbers.clipRatioLow, numbers.clipRatioHigh) !== raw;
    const moves = token.advantage !== 0 && clippedLogRatio(numbers, token) === raw;
    return {
      loss: -token.advantage * ratio,
      grad: moves ? -advantage * ratio : 0,
      clipped: outside && token.advantage > 0,
      clippedLower: outside && token.advantage < 0,
    };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let up = t.advantage > 0.0 && t.logRatio <= params.clipRatioHigh;
  let down = t.advantage < 0.0 && t.logRatio >= -params.clipRatioLow;
  return select(0.0, -t.advantageSum / t.length * exp(min(t.sum / t.length, 80.0)), up || down);
}`,
});
