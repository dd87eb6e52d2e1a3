import { clamp, defineLoss, SEQUENCE_LOG_RATIO } from './types.ts';

/** Bound to which verl clamps a sequence's log ratio; above it the gradient is 0. */
const MAX_LOG_RATIO = 10;

/**
 * GSPO, in its token form: one ratio per sequence,
 *
 *   s = exp(min(mean_t (logp_t - oldLogp_t), 10))         mean over the trained tokens of the sequence
 *   l = max(-A s, -A clip(s, 1 - clipRatioLow, 1 + clipRatioHigh))
 *
 * with d s / d logp_t = s for each token (the factor 1 / length is in the aggregation, which is always
 * seq-mean-token-mean). The paper's clip range is 3e-4 / 4e-4.
 */
export const gspo = defineLoss({
  paper: 'arXiv:2507.18071',
  zeroAtZeroAdvantage: true,
  aggregation: 'seq-mean-token-mean',
  sequenceTerm: SEQUENCE_LOG_RATIO,
  row({ clipRatioLow, clipRatioHigh }, token, sequence) {
    const mean = sequence.sum / Math.max(sequence.length, 1);
    const ratio = Math.exp(Math.min(mean, MAX_LOG_RATIO));
    const free = -token.advantage * ratio;
    const bounded = -token.advantage * clamp(ratio, 1 - clipRatioLow, 1 + clipRatioHigh);
    const clipped = bounded > free;
    return { loss: Math.max(free, bounded), grad: clipped || mean > MAX_LOG_RATIO ? 0 : free, clipped };
  },
  wgsl: `
fn rowGrad(t: Token) -> f32 {
  let mean = t.sum / t.length;
  let ratio = exp(min(mean, 10.0));
  let free = -t.advantage * ratio;
  let bounded = -t.advantage * clamp(ratio, 1.0 - params.clipRatioLow, 1.0 + params.clipRatioHigh);
  return select(0.0, free, bounded <= free && mean <= 10.0);
}`,
});

/**
 * LUSPO (length-unbiased sequence policy optimization, arXiv:2602.05261): GSPO's row with seq-mean-token-sum, so that
 * each sequence is weighted by its length and long answers are not held back.
 */
export const luspo = defineLoss({ ...gspo, paper: 'arXiv:2602.05261', aggregation: 'seq-mean-token-sum' });
