import { ALL_METRICS, clamp, clampedLogRatio, type PolicyLoss } from './types.ts';

/**
 * PPO's clipped objective, the loss of GRPO (arXiv:2402.03300), Dr. GRPO and DAPO:
 *
 *   l = max(-A r, -A clip(r, 1 - clipRatioLow, 1 + clipRatioHigh)),   r = exp(clip(logp - oldLogp, -20, 20))
 *   l = min(l, -A clipRatioC)   where A < 0      (dual clip, arXiv:1912.09729)
 *
 * Defaults (verl): clipRatioLow = clipRatioHigh = 0.2, clipRatioC = 3. DAPO's clip-higher (arXiv:2503.14476) is
 * 0.2 / 0.28. g = -A r where no clip acted, else 0.
 */
export const vanilla: PolicyLoss = {
  reports: ALL_METRICS,
  row(spec, token) {
    const { logRatio, passes } = clampedLogRatio(token);
    const ratio = Math.exp(logRatio);
    const a = token.advantage;
    const free = -a * ratio;
    const bounded = -a * clamp(ratio, 1 - spec.clipRatioLow, 1 + spec.clipRatioHigh);
    const clipped = bounded > free;
    const once = Math.max(free, bounded);
    const clippedLower = a < 0 && once > -a * spec.clipRatioC;
    return {
      loss: clippedLower ? -a * spec.clipRatioC : once,
      grad: clipped || clippedLower || !passes ? 0 : -a * ratio,
      clipped,
      clippedLower,
      kl: -logRatio,
    };
  },
};
