/**
 * Computes the weight of each token in the mini-batch's scalar loss, sum_e weight_e * l_e. The modes have verl's names:
 *
 *   token-mean               1 / T                every token counts the same       (DAPO, arXiv:2503.14476)
 *   token-sum                1
 *   seq-mean-token-sum       1 / S                every sequence counts by its length
 *   seq-mean-token-mean      1 / (S n_s)          every sequence counts the same    (GRPO, arXiv:2402.03300)
 *   seq-mean-token-sum-norm  1 / (S L)            constant L = maxResponseLength    (Dr. GRPO, arXiv:2503.20783)
 *
 * T = trained tokens of the WHOLE mini-batch and n_s = those of the sequence, after every mask and filter. S is a
 * constant of the run, verl's global_batch_size: ppoMiniBatchSize x n, the number of sequences in a mini-batch before
 * any is masked or rejected or lacks a reward. If API clients make the samples (`webgrpo serve`), a step's size is not
 * constant, and S is the number of sequences that the mini-batch has. A sequence that drops out loses its share of the
 * gradient; the shares of the others stay the same. Micro-batches slice these weights, so the split changes nothing.
 */

import type { LossAggMode, PolicyLoss } from './types.ts';

export const LOSS_AGG_MODES: readonly LossAggMode[] = [
  'token-mean',
  'token-sum',
  'seq-mean-token-sum',
  'seq-mean-token-mean',
  'seq-mean-token-sum-norm',
];

/** verl adds this number to a sequence's length before dividing by the length. */
const EPSILON = 1e-8;

export interface AggregateOptions {
  /** L of seq-mean-token-sum-norm, verl's loss_scale_factor: a constant of the run. */
  maxResponseLength: number;
  /**
   * S: sequences of a mini-batch, including masked ones. Default: sequences with a trained token, like verl's agg_loss
   * without global_batch_size.
   */
  globalBatchSize?: number;
  /**
   * T of token-mean, verl's batch_num_tokens, for a mini-batch that is computed in parts. Default: the tokens of the
   * masks.
   */
  batchNumTokens?: number;
}

const sum = (values: ArrayLike<number>): number => {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i];
  return total;
};

/**
 * Returns the weight of each token: 0 where the mask is 0, and 0 everywhere if no token is trained.
 * @param sampleMasks one array per sample of the full mini-batch; 1 = trained, 0 = tool output, rejected, ...
 */
export function tokenWeights(
  mode: LossAggMode,
  sampleMasks: readonly ArrayLike<number>[],
  options: AggregateOptions,
): Float64Array[] {
  if (!LOSS_AGG_MODES.includes(mode)) {
    throw new RangeError(`Unknown lossAggMode "${mode}"; known: ${LOSS_AGG_MODES.join(', ')}.`);
  }
  if (mode === 'seq-mean-token-sum-norm' && !(options.maxResponseLength > 0)) {
    throw new RangeError(`lossAggMode "${mode}" needs maxResponseLength > 0, but it is ${options.maxResponseLength}.`);
  }
  const lengths = sampleMasks.map(sum);
  const tokens = options.batchNumTokens ?? sum(lengths);
  const sequences = options.globalBatchSize ?? lengths.filter((length) => length > 0).length;
  return sampleMasks.map((mask, s) => {
    const weight = lengths[s] > 0 ? sequenceWeight(mode, lengths[s], tokens, sequences, options) : 0;
    return Float64Array.from(mask, (m) => m * weight);
  });
}

function sequenceWeight(
  mode: LossAggMode,
  length: number,
  tokens: number,
  sequences: number,
  o: AggregateOptions,
): number {
  switch (mode) {
    case 'token-mean':
      return 1 / tokens;
    case 'token-sum':
      return 1;
    case 'seq-mean-token-sum':
      return 1 / sequences;
    case 'seq-mean-token-mean':
      return 1 / (sequences * (length + EPSILON));
    case 'seq-mean-token-sum-norm':
      return 1 / (sequences * o.maxResponseLength);
  }
}

/** Sizes by which an aggregation divides, and importance weights. */
export interface WeightOptions extends AggregateOptions {
  /** Importance weight of each token (`correction/correct.ts`), in the shape of the masks. Default: 1. */
  isWeights?: readonly ArrayLike<number>[];
}

/** Weight of each token in the scalar loss: one array per sample, one number per response token. */
export interface LossWeights {
  /** Weights of the policy loss: aggregation (the loss's own, if it fixes one) x mask x importance weight. */
  weights: Float64Array[];
  /** Weights of KL and entropy terms: configured aggregation x mask, without importance weights. */
  klWeights: Float64Array[];
}

/**
 * Returns the weights of a mini-batch for one policy loss. Some losses fix their aggregation: seq-mean-token-mean for
 * GSPO and SAPO, seq-mean-token-sum for LUSPO. GMPO fixes the mean over all sequences, including empty ones, with the
 * geometric mean of a sequence's importance weights.
 */
export function lossWeights(
  { aggregation: forced }: Pick<PolicyLoss, 'aggregation'>,
  lossAggMode: LossAggMode,
  sampleMasks: readonly ArrayLike<number>[],
  options: WeightOptions,
): LossWeights {
  const klWeights = tokenWeights(lossAggMode, sampleMasks, options);
  const { isWeights } = options;
  if (forced === 'seq-geo-mean') return { weights: geoMeanWeights(sampleMasks, options), klWeights };
  const weights = forced ? tokenWeights(forced, sampleMasks, options) : klWeights.map((w) => w.slice());
  if (isWeights) weights.forEach((w, s) => w.forEach((x, t) => (w[t] = x === 0 ? 0 : x * isWeights[s][t])));
  return { weights, klWeights };
}

/** mask * W_s / (S * n_s), W_s = exp(mean log(isWeight + 1e-10)) over the trained tokens. */
function geoMeanWeights(
  sampleMasks: readonly ArrayLike<number>[],
  { isWeights, globalBatchSize = sampleMasks.length }: WeightOptions,
): Float64Array[] {
  return sampleMasks.map((mask, s) => {
    const length = sum(mask) + EPSILON;
    let logWeight = 0;
    if (isWeights)
      for (let t = 0; t < mask.length; t++) if (mask[t]) logWeight += mask[t] * Math.log(isWeights[s][t] + 1e-10);
    const weight = Math.exp(logWeight / length) / (globalBatchSize * length);
    return Float64Array.from(mask, (m) => m * weight);
  });
}
