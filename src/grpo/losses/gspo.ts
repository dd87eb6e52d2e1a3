import { ALL_METRICS, clamp, type PolicyLoss } from './types.ts';

/** Above this log ratio of a sequence verl cuts value and gradient. */
const MAX_LOG_RATIO = 10;

/**
 * GSPO (arXiv:2507.18071), in its token form: one ratio per sequence,
 *
 *   s = exp(min(mean_t (logp_t - oldLogp_t), 10))         mean over the trained tokens of the sequence
 *   l = max(-A s, -A clip(s, 1 - clipRatioLow, 1 + clipRatioHigh))
 *
 * with d s / d logp_t = s per token (the 1 / length is in the aggregation, which is always seq-mean-token-mean).
 * The paper's clip range is 3e-4 / 4e-4.
 */
export const gspo: PolicyLoss = {
  reports: ALL_METRICS,
  aggregation: 'seq-mean-token-mean',
  sequenceTerm: (_spec, token) => token.logp - token.oldLogp,
  row(spec, token, sequence) {
    const mean = sequence.sum / Math.max(sequence.length, 1);
    const ratio = Math.exp(Math.min(mean, MAX_LOG_RATIO));
    const a = token.advantage;
    const free = -a * ratio;
    const bounded = -a * clamp(ratio, 1 - spec.clipRatioLow, 1 + spec.clipRatioHigh);
    const clipped = bounded > free;
    return {
      loss: Math.max(free, bounded),
      grad: clipped || mean > MAX_LOG_RATIO ? 0 : -a * ratio,
      clipped,
      clippedLower: false,
      kl: token.oldLogp - token.logp,
    };
  },
};

/**
 * LUSPO (length-unbiased sequence policy optimization): GSPO's row, each sequence weighted by its length, that is
 * aggregated by seq-mean-token-sum, so that long answers are not held back.
 */
export const luspo: PolicyLoss = { ...gspo, aggregation: 'seq-mean-token-sum' };
