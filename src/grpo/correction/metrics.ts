/** verl's rollout_corr/* metrics (names here without that prefix), in float64. */

/** Per-token arrays, one per sample. The arrays of a sample have its number of tokens. */
export interface Samples {
  /** Log-prob under the training policy before the update. */
  oldLogp: readonly ArrayLike<number>[];
  /** Log-prob under the policy that sampled. */
  rolloutLogp: readonly ArrayLike<number>[];
  /** 1 = trained. */
  masks: readonly ArrayLike<number>[];
}

type Masks = Samples['masks'];
type Value = (s: number, t: number) => number;

const SAFETY_BOUND = 20;
const EPSILON = 1e-8;

function sumOf(masks: Masks, value: Value): number {
  let sum = 0;
  masks.forEach((mask, s) => {
    for (let t = 0; t < mask.length; t++) if (mask[t] !== 0) sum += mask[t] * value(s, t);
  });
  return sum;
}

const meanOf = (masks: Masks, value: Value): number => sumOf(masks, value) / (sumOf(masks, () => 1) + EPSILON);

/** Mean of each sample's values over its trained tokens; 0 for a sample without a trained token. */
const sequenceMeans = (masks: Masks, value: Value): number[] =>
  masks.map((mask, s) => meanOf([mask], (_, t) => value(s, t)));

const average = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const share = (values: readonly number[], test: (x: number) => boolean): number =>
  values.filter(test).length / values.length;
const largest = (values: readonly number[]): number => values.reduce((a, b) => Math.max(a, b), -Infinity);
const smallest = (values: readonly number[]): number => values.reduce((a, b) => Math.min(a, b), Infinity);

function unbiasedStd(values: readonly number[]): number {
  if (values.length < 2) return 0;
  const center = average(values);
  return Math.sqrt(values.reduce((sum, v) => sum + (v - center) ** 2, 0) / (values.length - 1));
}

function trained(masks: Masks, value: Value): number[] {
  return masks.flatMap((mask, s) =>
    Array.from(mask, (_, t) => t)
      .filter((t) => mask[t] !== 0)
      .map((t) => value(s, t)),
  );
}

/** Standard deviation sqrt(E[x^2] - E[x]^2), as in verl; 0 for fewer than two tokens. */
function biasedStd(masks: Masks, value: Value): number {
  if (sumOf(masks, () => 1) <= 1) return 0;
  const center = meanOf(masks, value);
  return Math.sqrt(Math.max(meanOf(masks, (s, t) => value(s, t) ** 2) - center * center, 0));
}

interface IsMetricInputs {
  level: string;
  /** Importance weights before truncation, 0 where the mask is 0. */
  raw: readonly Float64Array[];
  /** Importance weights as used, after truncation. */
  applied: readonly Float64Array[];
  /** [S] sum of the log ratios of each sample. */
  sums: readonly number[];
  masks: Masks;
  /** Lower bound of the weights. Null if weights are truncated instead of set to 0; the metrics then use 1 / high. */
  low: number | null;
  high: number;
}

/** Returns metrics of the importance weights. */
export function isMetrics(input: IsMetricInputs): Record<string, number> {
  const { raw, applied, masks, high } = input;
  const low = input.low ?? 1 / high;
  const bounded: Value = (s, t) => Math.min(Math.max(applied[s][t], 0), high);
  const center = meanOf(masks, bounded) + EPSILON;
  const sequences = sequenceMeans(masks, (s, t) => applied[s][t]);
  const rawSequences = sequenceMeans(masks, (s, t) => raw[s][t]);
  const metrics: Record<string, number> = {
    ...(input.level === 'sequence' ? sequenceExtremes(input.sums, low, high) : tokenExtremes(input, low)),
    rollout_is_mean: meanOf(masks, (s, t) => applied[s][t]),
    rollout_is_std: biasedStd(masks, bounded),
    rollout_is_eff_sample_size: 1 / meanOf(masks, (s, t) => (bounded(s, t) / center) ** 2),
    rollout_is_seq_mean: average(sequences),
    rollout_is_seq_std: unbiasedStd(sequences),
    rollout_is_seq_max: largest(sequences),
    rollout_is_seq_min: smallest(sequences),
    rollout_is_seq_max_deviation: largest(sequences.map((w) => Math.abs(w - 1))),
    rollout_is_seq_fraction_high: share(rawSequences, (w) => w > high),
    rollout_is_seq_fraction_low: share(rawSequences, (w) => w < low),
  };
  if (input.low === null) return metrics;
  const outside: Value = (s, t) => (raw[s][t] < low || raw[s][t] > high ? 1 : 0);
  return { ...metrics, rollout_is_oob_ratio: meanOf(masks, outside) };
}

function sequenceExtremes(sums: readonly number[], low: number, high: number): Record<string, number> {
  return {
    rollout_is_max: Math.exp(Math.min(largest(sums), SAFETY_BOUND)),
    rollout_is_min: Math.exp(smallest(sums)),
    rollout_is_ratio_fraction_high: share(sums, (x) => x > Math.log(high)),
    rollout_is_ratio_fraction_low: share(sums, (x) => x < Math.log(low)),
  };
}

function tokenExtremes({ raw, applied, masks, high }: IsMetricInputs, low: number): Record<string, number> {
  const used = trained(masks, (s, t) => applied[s][t]);
  return {
    rollout_is_max: largest(used),
    rollout_is_min: smallest(used),
    rollout_is_ratio_fraction_high: meanOf(masks, (s, t) => (raw[s][t] > high ? 1 : 0)),
    rollout_is_ratio_fraction_low: meanOf(masks, (s, t) => (raw[s][t] < low ? 1 : 0)),
  };
}

/** Metrics of one rejection criterion. `bounds.low` is -Infinity if only the upper bound counts. */
export function rejectionMetrics(
  option: string,
  statistic: { perToken: readonly Float64Array[]; perSequence?: number[] },
  keep: readonly Float64Array[],
  masks: Masks,
  bounds: { low: number; high: number },
): Record<string, number> {
  const prefix = `rollout_rs_${option}`;
  const value: Value = (s, t) => statistic.perToken[s][t];
  const hasTokens = masks.map((mask) => Array.from(mask).some((m) => m !== 0));
  const sequences = (statistic.perSequence ?? sequenceMeans(masks, value)).filter((_, s) => hasTokens[s]);
  const tokens = trained(masks, value);
  const level = statistic.perSequence ? sequences : tokens;
  const dropped = keep
    .map((k, s) => (k.some((kept, t) => kept === 0 && masks[s][t] !== 0) ? 1 : 0))
    .filter((_, s) => hasTokens[s]);
  const floor = bounds.low === -Infinity ? 0 : bounds.low;
  const fraction = (test: (x: number) => boolean): number =>
    statistic.perSequence ? share(sequences, test) : meanOf(masks, (s, t) => (test(value(s, t)) ? 1 : 0));
  const metrics: Record<string, number> = {
    [`${prefix}_mean`]: meanOf(masks, value),
    [`${prefix}_max`]: largest(level),
    [`${prefix}_min`]: smallest(level),
    [`${prefix}_fraction_high`]: fraction((x) => x > bounds.high),
    [`${prefix}_fraction_low`]: fraction((x) => x < bounds.low),
    [`${prefix}_std`]: biasedStd(masks, (s, t) => Math.min(Math.max(value(s, t), floor), bounds.high)),
    [`${prefix}_seq_mean`]: average(sequences),
    [`${prefix}_seq_std`]: unbiasedStd(sequences),
    [`${prefix}_seq_max`]: largest(sequences),
    [`${prefix}_seq_min`]: smallest(sequences),
    [`${prefix}_seq_max_deviation`]: largest(sequences.map(Math.abs)),
    [`${prefix}_seq_fraction_high`]: share(sequences, (x) => x > bounds.high),
    [`${prefix}_masked_fraction`]: meanOf(masks, (s, t) => 1 - keep[s][t]),
    [`${prefix}_seq_masked_fraction`]: share(dropped, (d) => d === 1),
  };
  if (bounds.low !== -Infinity) metrics[`${prefix}_seq_fraction_low`] = share(sequences, (x) => x < bounds.low);
  return metrics;
}

/**
 * Distance between the sampler (mu) and the trained policy (pi): kl, k3_kl, perplexities, chi-squared. Natural logs.
 */
export function offPolicyMetrics({ oldLogp, rolloutLogp, masks }: Samples): Record<string, number> {
  const logRatio: Value = (s, t) => oldLogp[s][t] - rolloutLogp[s][t];
  const training = sequenceMeans(masks, (s, t) => oldLogp[s][t]);
  const rollout = sequenceMeans(masks, (s, t) => rolloutLogp[s][t]);
  const difference = rollout.map((r, s) => r - training[s]);
  const sums = masks.map((mask, s) => sumOf([mask], (_, t) => logRatio(s, t)));
  const safe = (x: number): number => Math.min(Math.max(x, -SAFETY_BOUND), SAFETY_BOUND);
  return {
    training_ppl: average(training.map((x) => Math.exp(-x))),
    training_log_ppl: average(training.map((x) => -x)),
    kl: meanOf(masks, (s, t) => -logRatio(s, t)),
    k3_kl: meanOf(masks, (s, t) => Math.exp(logRatio(s, t)) - logRatio(s, t) - 1),
    rollout_ppl: average(rollout.map((x) => Math.exp(-x))),
    rollout_log_ppl: average(rollout.map((x) => -x)),
    log_ppl_diff: average(difference),
    log_ppl_abs_diff: average(difference.map(Math.abs)),
    log_ppl_diff_max: largest(difference),
    log_ppl_diff_min: smallest(difference),
    ppl_ratio: average(difference.map(Math.exp)),
    chi2_token: meanOf(masks, (s, t) => Math.exp(2 * safe(logRatio(s, t)))) - 1,
    chi2_seq: average(sums.map((x) => Math.exp(2 * safe(x)))) - 1,
  };
}
