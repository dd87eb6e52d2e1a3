/** Weights of old samples: how much likelier a token has become since it was drawn, and what a correction makes of that. */

import { rolloutCorrection } from '../../../src/grpo/correction/correct.ts';
import type { LogProbs } from '../kit/runLoop.ts';

/** A weight for each token, or one for all tokens of a try: the product of theirs. */
export type Level = 'token' | 'sequence';

/** Returns the weight of each token, cut at `cap`. It is the library's rollout correction. */
export function truncatedWeights({ drawn, now }: LogProbs, cap = Infinity, level: Level = 'token'): Float64Array[] {
  const settings = {
    ...{ rolloutIs: level, rolloutIsThreshold: cap, rolloutIsBatchNormalize: false },
    ...{ rolloutRs: '', rolloutRsThreshold: '' },
  };
  const masks = drawn.map((own) => new Uint8Array(own.length).fill(1));
  return rolloutCorrection(settings, { oldLogp: now, rolloutLogp: drawn, masks }).isWeights ?? [];
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

/** Returns (sum of w)^2 / (n sum of w^2): as if this share of the tokens had the weight 1, and the others 0. */
export const effectiveShare = (weights: readonly number[]): number =>
  weights.length === 0 ? 1 : sum(weights) ** 2 / (weights.length * sum(weights.map((weight) => weight * weight)));

/** Returns the value that `share` of the sorted values do not exceed. */
const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 1;

/** Ratios of a batch: of the lowest and the highest hundredth, and in the middle, with the effective share of the tokens. */
export interface Ratios {
  low: number;
  middle: number;
  high: number;
  share: number;
}

export function ratiosOf(logProbs: LogProbs): Ratios {
  const weights = truncatedWeights(logProbs).flatMap((own) => [...own]);
  const sorted = weights.toSorted((a, b) => a - b);
  const [low, middle, high] = [0.01, 0.5, 0.99].map((share) => quantile(sorted, share));
  return { low, middle, high, share: effectiveShare(weights) };
}

/** Effect of a cap on a batch. */
export interface Corrected {
  weights: number[];
  /** Share of the tokens whose weight is cut. */
  cut: number;
  /** Share of the weights' sum that the cap takes away: the bias. */
  lost: number;
  /** Falls as few tokens decide: the variance. */
  share: number;
}

export function corrected(logProbs: LogProbs, cap: number, level: Level): Corrected {
  const flat = (weights: readonly Float64Array[]) => weights.flatMap((own) => [...own]);
  const [all, weights] = [
    flat(truncatedWeights(logProbs, Infinity, level)),
    flat(truncatedWeights(logProbs, cap, level)),
  ];
  return {
    weights,
    cut: all.filter((weight) => weight > cap).length / Math.max(1, all.length),
    lost: 1 - sum(weights) / Math.max(1e-9, sum(all)),
    share: effectiveShare(weights),
  };
}
