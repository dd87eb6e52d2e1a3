import { type ClipRange, clamp, clampedLogRatio, defineLoss } from './types.ts';

/**
 * CISPO: REINFORCE with the ratio as a bounded, constant weight, so every token keeps a gradient:
 *
 *   l = -w A logp,   w = clip(r, 1 - clipRatioLow, 1 + clipRatioHigh) held constant,   r = exp(clip(logp - oldLogp, -20, 20))
 *
 * verl's upper bound on w is 1 + clip_ratio_high; TRL's is epsilon_high itself (an epsilon_high of 5 equals a clip_ratio_high of 4). `wMax`
 * sets the upper bound itself, like TRL, and replaces 1 + clipRatioHigh.
 */
export const cispo = defineLoss({
  paper: 'arXiv:2506.13585',
  zeroAtZeroAdvantage: true,
  numbers: { wMax: ({ clipRatioHigh }: ClipRange) => 1 + clipRatioHigh },
  row({ clipRatioLow, wMax }, token) {
    const { logRatio } = clampedLogRatio(token);
    const ratio = Math.exp(logRatio);
    const weight = clamp(ratio, 1 - clipRatioLow, wMax);
    const grad = -weight * token.advantage;
    return { loss: grad * token.logp, grad, clipped: weight !== ratio, kl: -logRatio };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let ratio = exp(clamp(t.logRatio, -20.0, 20.0));
  return -t.advantage * clamp(ratio, 1.0 - params.clipRatioLow, params.wMax);
}`,
});
