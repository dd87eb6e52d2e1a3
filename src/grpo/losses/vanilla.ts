import { clamp, clampedLogRatio, defineLoss } from './types.ts';

/**
 * PPO's clipped objective, the loss of GRPO (arXiv:2402.03300), Dr. GRPO and DAPO:
 *
 *   l = max(-A r, -A clip(r, 1 - clipRatioLow, 1 + clipRatioHigh)),   r = exp(clip(logp - oldLogp, -20, 20))
 *   l = min(l, -A clipRatioC)   where A < 0      (dual clip, arXiv:1912.09729)
 *
 * verl has clipRatioLow = clipRatioHigh = 0.2, clipRatioC = 3. DAPO's clip-higher (arXiv:2503.14476) is 0.2 / 0.28.
 * g = -A r if no clip acted, otherwise 0.
 */
export const vanilla = defineLoss({
  paper: 'arXiv:1707.06347',
  zeroAtZeroAdvantage: true,
  row({ clipRatioLow, clipRatioHigh, clipRatioC }, token) {
    const { logRatio, passes } = clampedLogRatio(token);
    const ratio = Math.exp(logRatio);
    const a = token.advantage;
    const free = -a * ratio;
    const bounded = -a * clamp(ratio, 1 - clipRatioLow, 1 + clipRatioHigh);
    const clipped = bounded > free;
    const once = Math.max(free, bounded);
    const clippedLower = a < 0 && once > -a * clipRatioC;
    return {
      loss: clippedLower ? -a * clipRatioC : once,
      grad: clipped || clippedLower || !passes ? 0 : -a * ratio,
      clipped,
      clippedLower,
      kl: -logRatio,
    };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let ratio = exp(clamp(t.logRatio, -20.0, 20.0));
  let free = -t.advantage * ratio;
  let bounded = -t.advantage * clamp(ratio, 1.0 - params.clipRatioLow, 1.0 + params.clipRatioHigh);
  let dualClip = t.advantage < 0.0 && max(free, bounded) > -t.advantage * params.clipRatioC;
  return select(0.0, free, bounded <= free && !dualClip && abs(t.logRatio) <= 20.0);
}`,
});
