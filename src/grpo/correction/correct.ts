/**
 * Rollout correction: the sampling policy is never exactly the policy that is trained (stale weights, top-p, other
 * arithmetic). Importance weights correct the difference, rejection drops tokens or sequences whose difference is too
 * large, and metrics report it. Names, thresholds and metrics are those of verl's rollout_corr_helper.
 *
 * Inputs are one array per sample, over the WHOLE mini-batch: log-probs of the training policy before its first update
 * ("old"), of the sampler ("rollout"), and the mask of trained tokens.
 */

import { clamp } from '../losses/types.ts';
import { isMetrics, offPolicyMetrics, rejectionMetrics, type Samples } from './metrics.ts';

export type { Samples } from './metrics.ts';

/** Bound on |log ratio|: log ratios are clamped to it. */
const SAFETY_BOUND = 20;

export interface RolloutCorrection {
  /**
   * Level of the importance weights: one per token, or one per sequence (the product of its ratios). 'none' = no
   * weights.
   */
  rolloutIs: 'none' | 'token' | 'sequence';
  /**
   * Bound on the weights. A number: larger weights are truncated to it (TIS). 'low_high' (e.g. '0.5_5'): weights
   * outside this range become 0 (IcePop). Default: 2.
   */
  rolloutIsThreshold: number | string;
  /** True to divide the weights by their mean, so that they average 1. */
  rolloutIsBatchNormalize: boolean;
  /**
   * Rejection criteria joined by commas; a token must pass all of them. '' = no rejection. Allowed: token_k1|k2|k3,
   * seq_sum_k1|k2|k3, seq_mean_k1|k2|k3, seq_max_k2|k3.
   */
  rolloutRs: string;
  /**
   * One threshold for all rejection criteria, or one for each, joined by commas. Criteria with k1 take 'low_high'
   * bounds on the ratio.
   */
  rolloutRsThreshold: number | string;
}

interface CorrectionResult {
  /** Masks after rejection. */
  masks: Float64Array[];
  /** Importance weights, 0 where the mask is 0. Undefined if rolloutIs is 'none'. */
  isWeights?: Float64Array[];
  /** Metrics rollout_corr/*; empty if no token is trained. */
  metrics: Record<string, number>;
}

/**
 * Returns weights, rejection masks and metrics of a mini-batch. Weights are computed from the mask before rejection, as
 * in verl.
 */
export function rolloutCorrection(config: RolloutCorrection, samples: Samples): CorrectionResult {
  const masks = samples.masks.map((mask) => Float64Array.from(mask));
  if (!masks.some((mask) => mask.some((m) => m !== 0))) return { masks, metrics: {} };
  const metrics: Record<string, number> = {};
  const result: CorrectionResult = { masks, metrics };
  if (config.rolloutIs !== 'none') {
    const { weights, metrics: ours } = importanceWeights(config, samples);
    result.isWeights = weights;
    Object.assign(metrics, ours);
  }
  if (config.rolloutRs !== '') {
    const rejection = rejectionMask(config.rolloutRs, config.rolloutRsThreshold, samples);
    result.masks = rejection.masks;
    Object.assign(metrics, rejection.metrics);
  }
  Object.assign(metrics, offPolicyMetrics(samples));
  result.metrics = Object.fromEntries(Object.entries(metrics).map(([name, value]) => [`rollout_corr/${name}`, value]));
  return result;
}

/** Parses a bound on weights: [low, high] for 'low_high', [null, high] for a plain number. */
function parseIsThreshold(spec: number | string): { low: number | null; high: number } {
  const [first, second] = String(spec).split('_').map(Number);
  const low = second === undefined ? null : first;
  const high = second ?? first;
  if (!(high > 0) || (low !== null && !(low > 0 && low <= high))) {
    throw new RangeError(`rolloutIsThreshold is "${spec}". Give a positive number (truncate) or "low_high" (IcePop).`);
  }
  return { low, high };
}

interface Weighted {
  weights: Float64Array[];
  metrics: Record<string, number>;
}

function importanceWeights(config: RolloutCorrection, samples: Samples): Weighted {
  const { low, high } = parseIsThreshold(config.rolloutIsThreshold);
  const sums = samples.masks.map((mask, s) => maskedSum(mask, (t) => logRatio(samples, s, t)));
  const raw = samples.masks.map((mask, s) =>
    Float64Array.from(mask, (m, t) => {
      const x = config.rolloutIs === 'token' ? logRatio(samples, s, t) : sums[s];
      return m === 0 ? 0 : m * Math.exp(clamp(x, -SAFETY_BOUND, SAFETY_BOUND));
    }),
  );
  const applied = raw.map((ws) => ws.map((w) => (low === null ? Math.min(w, high) : w >= low && w <= high ? w : 0)));
  const metrics = isMetrics({ level: config.rolloutIs, raw, applied, sums, masks: samples.masks, low, high });
  if (!config.rolloutIsBatchNormalize) return { weights: applied, metrics };
  const center = meanWeight(config.rolloutIs, applied, samples.masks);
  const factor = center > 1e-8 ? center : 1;
  metrics.rollout_is_batch_norm_factor = factor;
  return { weights: applied.map((ws) => ws.map((w) => w / factor)), metrics };
}

/**
 * Returns the mean weight: over all trained tokens for level 'token', otherwise over the sequences that have a trained
 * token.
 */
function meanWeight(level: string, weights: readonly Float64Array[], masks: Samples['masks']): number {
  const sums = masks.map((mask, s) => maskedSum(mask, (t) => weights[s][t]));
  const counts = masks.map((mask) => maskedSum(mask, () => 1));
  const add = (values: number[]): number => values.reduce((a, b) => a + b, 0);
  if (level === 'token') return add(sums) / (add(counts) + 1e-8);
  const means = sums.map((sum, s) => (counts[s] > 0 ? sum / (counts[s] + 1e-8) : 0));
  return add(means) / Math.max(counts.filter((count) => count > 0).length, 1e-8);
}

const logRatio = (samples: Samples, s: number, t: number): number => samples.oldLogp[s][t] - samples.rolloutLogp[s][t];

function maskedSum(mask: ArrayLike<number>, value: (t: number) => number): number {
  let sum = 0;
  for (let t = 0; t < mask.length; t++) if (mask[t] !== 0) sum += mask[t] * value(t);
  return sum;
}

const RS_OPTIONS = ['token', 'seq_sum', 'seq_mean']
  .flatMap((level) => ['k1', 'k2', 'k3'].map((k) => `${level}_${k}`))
  .concat('seq_max_k2', 'seq_max_k3');

interface Bounds {
  low: number;
  high: number;
}

/**
 * Parses the thresholds to bounds on each criterion's statistic: for k1 the logs of the ratio bounds, otherwise
 * [-Infinity, threshold].
 */
function parseRsThresholds(options: readonly string[], spec: number | string): Bounds[] {
  const parts = String(spec)
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
  if (parts.length !== 1 && parts.length !== options.length) {
    throw new RangeError(
      `rolloutRsThreshold "${spec}" holds ${parts.length} thresholds for ${options.length} options (${options.join(', ')}). ` +
        'Give one for all or one each.',
    );
  }
  return options.map((option, i) => rsBounds(option, parts.length === 1 ? parts[0] : parts[i]));
}

function rsBounds(option: string, part: string): Bounds {
  const numbers = part.split('_').map(Number);
  const isK1 = option.endsWith('k1');
  const [low, high] = numbers.length === 2 ? numbers : [1 / numbers[0], numbers[0]];
  const valid = low > 0 && high > 0 && numbers.length <= (isK1 ? 2 : 1) && (!isK1 || low <= high);
  if (!valid) {
    throw new RangeError(
      `rolloutRsThreshold "${part}" does not fit ${option}. ` +
        (isK1 ? 'Give "low_high" bounds on the ratio, e.g. "0.5_2".' : 'Give one positive number.'),
    );
  }
  return isK1 ? { low: Math.log(low), high: Math.log(high) } : { low: -Infinity, high };
}

/** Divergence of one token from its log ratio x = log(pi / piRollout), clamped to +-20. */
function divergence(kind: string, x: number): number {
  const safe = clamp(x, -SAFETY_BOUND, SAFETY_BOUND);
  if (kind === 'k1') return -safe;
  return kind === 'k2' ? 0.5 * safe * safe : Math.exp(safe) - 1 - safe;
}

interface Rejection {
  masks: Float64Array[];
  metrics: Record<string, number>;
}

function rejectionMask(rolloutRs: string, thresholds: number | string, samples: Samples): Rejection {
  const options = [...new Set(rolloutRs.split(',').map((option) => option.trim()))];
  for (const option of options) {
    if (RS_OPTIONS.includes(option)) continue;
    throw new RangeError(`Unknown rolloutRs option "${option}"; known: ${RS_OPTIONS.join(', ')}.`);
  }
  const bounds = parseRsThresholds(options, thresholds);
  const masks = samples.masks.map((mask) => Float64Array.from(mask));
  const metrics: Record<string, number> = {};
  options.forEach((option, i) => {
    const statistic = rsStatistic(option, samples);
    const keep = statistic.perToken.map((values) =>
      values.map((v) => (v >= bounds[i].low && v <= bounds[i].high ? 1 : 0)),
    );
    keep.forEach((k, s) => k.forEach((kept, t) => (masks[s][t] *= kept)));
    Object.assign(metrics, rejectionMetrics(option, statistic, keep, samples.masks, bounds[i]));
  });
  const kept = masks.map((mask, s) => mask.map((m, t) => (samples.masks[s][t] === 0 ? 1 : m > 0 ? 1 : 0)));
  Object.assign(metrics, maskedFractions('rollout_rs', kept, samples.masks));
  return { masks, metrics };
}

function maskedFractions(
  prefix: string,
  keep: readonly Float64Array[],
  masks: Samples['masks'],
): Record<string, number> {
  const count = masks.reduce((n, mask) => n + maskedSum(mask, () => 1), 0);
  const dropped = masks.reduce((n, mask, s) => n + maskedSum(mask, (t) => 1 - keep[s][t]), 0);
  const touched = keep.filter((k, s) => k.some((kept, t) => kept === 0 && masks[s][t] !== 0)).length;
  return {
    [`${prefix}_masked_fraction`]: dropped / (count + 1e-8),
    [`${prefix}_seq_masked_fraction`]: touched / masks.length,
  };
}

/** Statistic of a rejection criterion at every token. Sequence criteria repeat one value along the sequence. */
interface RsStatistic {
  perToken: Float64Array[];
  /** One value per sequence; only for sequence criteria. */
  perSequence?: number[];
}

function rsStatistic(option: string, samples: Samples): RsStatistic {
  const kind = option.slice(-2);
  const tokens = samples.masks.map((mask, s) =>
    Float64Array.from(mask, (_, t) => divergence(kind, logRatio(samples, s, t))),
  );
  if (option.startsWith('token')) return { perToken: tokens };
  const perSequence = samples.masks.map((mask, s) => {
    const sum = maskedSum(mask, (t) => tokens[s][t]);
    if (option.startsWith('seq_sum')) return sum;
    if (option.startsWith('seq_mean')) return sum / (maskedSum(mask, () => 1) + 1e-8);
    const trained = tokens[s].filter((_, t) => mask[t] !== 0);
    return trained.reduce((most, value) => Math.max(most, value), trained[0] ?? 0);
  });
  return { perToken: tokens.map((values, s) => values.map(() => perSequence[s])), perSequence };
}

/**
 * OPSM, off-policy sequence masking (DeepSeek-V3.2): drops whole sequences with a negative advantage and mean
 * log(piRollout / pi) above `threshold` nats. Returns the masks with those sequences set to 0.
 * @param advantages one number per sample
 */
export function offPolicySequenceMask(
  advantages: ArrayLike<number>,
  samples: Samples,
  threshold: number,
): Float64Array[] {
  return samples.masks.map((mask, s) => {
    const count = Math.max(
      maskedSum(mask, () => 1),
      1,
    );
    const kl = maskedSum(mask, (t) => -logRatio(samples, s, t)) / count;
    return Float64Array.from(mask, (m) => (advantages[s] >= 0 || kl <= threshold ? m : 0));
  });
}

/**
 * Keeps the tokens whose entropy is in the top `quantile` share of all trained tokens (arXiv:2506.01939; TRL's
 * top_entropy_quantile). 0.2 trains on the fifth of the tokens with the highest entropy; 1 keeps all.
 */
export function topEntropyMask(
  entropies: readonly ArrayLike<number>[],
  masks: readonly ArrayLike<number>[],
  quantile: number,
): Float64Array[] {
  if (!(quantile > 0 && quantile <= 1))
    throw new RangeError(`topEntropyQuantile is ${quantile}. It must be in (0, 1].`);
  const trained = masks.flatMap((mask, s) => Array.from(entropies[s]).filter((_, t) => mask[t] !== 0));
  const sorted = trained.sort((a, b) => a - b);
  const at = (sorted.length - 1) * (1 - quantile);
  const low = sorted[Math.floor(at)];
  const threshold = low + (at - Math.floor(at)) * ((sorted[Math.floor(at) + 1] ?? low) - low);
  return masks.map((mask, s) => Float64Array.from(mask, (m, t) => (entropies[s][t] >= threshold ? m : 0)));
}
