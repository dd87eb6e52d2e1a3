/**
 * What a policy loss is: a pure function of one trained token, and the gradient of its value.
 *
 * Every loss of this folder is written for one token: it returns the value l and g = d l / d logp. The scalar loss of a
 * mini-batch is sum_e weights[e] * l_e, with the weights of `aggregate.ts`, so the gradient is weights[e] * g_e whatever
 * the loss. A loss that works on whole sequences (GSPO, GMPO, VESPO) also names a per-token term; its mean over the
 * trained tokens of the sequence is handed to the row.
 */

import type { PolicyLossSpec } from '../../model/engine.ts';

/** One trained token. All logs are natural. */
export interface TokenRow {
  /** log pi_theta(token): the policy being trained. */
  logp: number;
  /** log-prob under the policy the ratio is taken against. */
  oldLogp: number;
  advantage: number;
  /** True where the loss's own `select` picked this token (clip-cov, kl-cov). */
  selected: boolean;
}

/** Of the sequence the token belongs to; all 0 for losses without a `sequenceTerm`. */
export interface SequenceStats {
  /** Trained tokens. */
  length: number;
  /** Sum of `sequenceTerm` over the trained tokens. */
  sum: number;
  /** Sum of the advantages over the trained tokens. */
  advantageSum: number;
}

export interface TokenLoss {
  /** To minimise; multiplied by the token's weight. */
  loss: number;
  /** d loss / d logp of this token, through every path (a sequence's mean included), for weights that are equal within a sequence. */
  grad: number;
  /** True where the upper (or only) clip acted: averaged into `actor/pg_clipfrac`. */
  clipped: boolean;
  /** True where the lower or dual clip acted: averaged into `actor/pg_clipfrac_lower`. */
  clippedLower: boolean;
  /** This token's term of `actor/ppo_kl`. */
  kl: number;
}

export type LossMetric = 'actor/pg_clipfrac' | 'actor/ppo_kl' | 'actor/pg_clipfrac_lower';

/** How token losses become one number; see `aggregate.ts`. */
export type LossAggMode =
  'token-mean' | 'token-sum' | 'seq-mean-token-sum' | 'seq-mean-token-mean' | 'seq-mean-token-sum-norm';

export interface PolicyLoss {
  row(spec: PolicyLossSpec, token: TokenRow, sequence: SequenceStats): TokenLoss;
  /** Per-token term of the sequence statistic; present = sequence-level loss. */
  sequenceTerm?(spec: PolicyLossSpec, token: TokenRow): number;
  /** Picks tokens by a statistic of the whole batch it is given; 1 = selected. All arrays [E]. */
  select?(spec: PolicyLossSpec, rows: LossRows): Uint8Array;
  /** Aggregation that replaces the configured one, as the published method demands. */
  aggregation?: LossAggMode | 'seq-geo-mean';
  /** Which of verl's metrics this loss reports. */
  reports: readonly LossMetric[];
}

/** Entries in sample order; every array but `seqStart` is [E]. */
export interface LossRows {
  logp: ArrayLike<number>;
  oldLogp: ArrayLike<number>;
  advantages: ArrayLike<number>;
  /** Aggregation x mask x importance weight, from the whole mini-batch: `lossWeights()`. */
  weights: ArrayLike<number>;
  /** 1 = trained; absent = all. Metrics and sequence statistics count by it. */
  mask?: ArrayLike<number>;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1]. */
  seqStart: ArrayLike<number>;
  /** log-prob under the frozen reference; needed when spec.klLossCoef is not 0. */
  refLogp?: ArrayLike<number>;
  /** Aggregation x mask of the KL term, which takes no importance weight; absent = `weights`. */
  klWeights?: ArrayLike<number>;
  /** Result of `select` over the whole mini-batch; absent = computed from these rows. */
  selected?: ArrayLike<number>;
}

export const ALL_METRICS = ['actor/pg_clipfrac', 'actor/ppo_kl', 'actor/pg_clipfrac_lower'] as const;

/** A number of the spec, or its default where the spec does not set it. */
export function setting(spec: PolicyLossSpec, name: string, fallback: number): number {
  const value = spec[name];
  if (value === undefined) return fallback;
  if (typeof value !== 'number') throw new TypeError(`Policy loss setting "${name}" is ${value}; it must be a number.`);
  return value;
}

export const clamp = (x: number, low: number, high: number): number => (x < low ? low : x > high ? high : x);

/** |log ratio| beyond which verl's token-level losses stop following it. */
export const LOG_RATIO_CLAMP = 20;

/** The clamped log ratio and whether a gradient still passes through the clamp (it does on the bound itself). */
export function clampedLogRatio(token: TokenRow): { logRatio: number; passes: boolean } {
  const raw = token.logp - token.oldLogp;
  return { logRatio: clamp(raw, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP), passes: Math.abs(raw) <= LOG_RATIO_CLAMP };
}
