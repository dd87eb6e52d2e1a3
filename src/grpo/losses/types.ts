/**
 * Types of a policy loss: a pure function of one trained token, and its gradient.
 *
 * Every loss of this folder is one file. It is written for one token, twice: `row` returns the value l and g = d l / d
 * logp in float64; `wgsl` returns g in f32 and is what trains. The scalar loss of a mini-batch is sum_e weights[e] *
 * l_e, with the weights of `aggregate.ts`, so the gradient is weights[e] * g_e for every loss. A loss that works on
 * full sequences (GSPO, GMPO, VESPO) also names a per-token term; the row receives its sum over the trained tokens of
 * the sequence.
 */

import { InputError } from '../../errors.ts';
import type { PolicyLossInputs, PolicyLossSpec } from '../../model/engine.ts';

/** One trained token. All logs are natural. */
export interface TokenRow {
  /** log pi_theta(token): the policy being trained. */
  logp: number;
  /** Log-prob under the policy in the ratio's denominator. */
  oldLogp: number;
  /** Advantage of the token. */
  advantage: number;
  /** True if the loss's own `select` picked this token (clip-cov, kl-cov). */
  selected: boolean;
}

/** Statistics of the token's sequence; all 0 for losses without a `sequenceTerm`. */
export interface SequenceStats {
  /** Number of trained tokens. */
  length: number;
  /** Sum of `sequenceTerm` over the trained tokens. */
  sum: number;
  /** Sum of the advantages over the trained tokens. */
  advantageSum: number;
}

/** Result of a row for one token. */
export interface TokenLoss {
  /** Value to minimise, before it is multiplied by the token's weight. */
  loss: number;
  /**
   * d loss / d logp of this token, including its effect through the sequence's mean. Assumes equal weights of all
   * tokens in a sequence.
   */
  grad: number;
  /** True if the upper (or only) clip bound was active; averaged into `actor/pg_clipfrac`. Default: false. */
  clipped?: boolean;
  /** True if the lower or dual clip bound was active; averaged into `actor/pg_clipfrac_lower`. Default: false. */
  clippedLower?: boolean;
  /** This token's term of `actor/ppo_kl`. Default: oldLogp - logp. */
  kl?: number;
  /** Additional metrics by name, reported as means over trained tokens. */
  metrics?: Readonly<Record<string, number>>;
}

export const LOSS_METRICS = ['actor/pg_clipfrac', 'actor/ppo_kl', 'actor/pg_clipfrac_lower'] as const;
export type LossMetric = (typeof LOSS_METRICS)[number];

/** How token losses are reduced to one number; see `aggregate.ts`. */
export type LossAggMode =
  | 'token-mean'
  | 'token-sum'
  | 'seq-mean-token-sum'
  | 'seq-mean-token-mean'
  | 'seq-mean-token-sum-norm';

/** Clip range in `actor`, which every loss can read. */
export interface ClipRange {
  clipRatioLow: number;
  clipRatioHigh: number;
  /** Dual-clip constant c (arXiv:1912.09729); > 1. */
  clipRatioC: number;
}

/** Defaults of a loss's own numeric parameters by name. A function computes the default from the clip range. */
type LossDefaults = Readonly<Record<string, number | ((clip: ClipRange) => number)>>;

/** Numeric parameters that a row reads: the clip range, and the loss's own parameters from the config or by default. */
export type LossNumbers<D extends LossDefaults = LossDefaults> = Readonly<Record<keyof D | keyof ClipRange, number>>;

/** A policy loss as a row: value and gradient of one token. `defineLoss` types the parameters of a row. */
export interface PolicyLoss<D extends LossDefaults = LossDefaults> {
  /** Name of the loss in errors, if the loss is not in `POLICY_LOSSES`. */
  name?: string;
  /** Paper that published the loss. */
  paper?: string;
  /** Aggregation that replaces the configured one, because the published method requires it. */
  aggregation?: LossAggMode | 'seq-geo-mean';
  /**
   * True if a token with advantage 0 always has value 0 and gradient 0. Samples that consist of such tokens then need
   * no forward and backward (`actor.skipZeroAdvantages`). Default: not known, so all samples are computed.
   */
  zeroAtZeroAdvantage?: boolean;
  /** verl's metrics that this loss reports. Default: all. */
  reports?: readonly LossMetric[];
  /** The loss's own numeric parameters (keys of `actor.policyLoss`), with their defaults. */
  numbers?: D;
  /** Returns the loss of one token and its gradient. */
  row(numbers: LossNumbers<D>, token: TokenRow, sequence: SequenceStats): TokenLoss;
  /**
   * `fn rowGrad(t: Token) -> f32`, the row's gradient. `Token` is in kernels/policy_loss.wgsl; `params` has the loss's parameters under the
   * same names. If `wgsl` is missing, the trainer runs `row` on the controller's thread, which needs a second forward pass per update.
   */
  wgsl?: string;
  /** Term of a sequence-level loss; undefined for token-level losses. */
  sequenceTerm?: SequenceTerm<D>;
  /** Selects tokens by a statistic of the full mini-batch; 1 = selected. All arrays are [E]. */
  select?(numbers: LossNumbers<D>, rows: LossRows): Uint8Array;
  /** Function that computes the loss instead of `row` and `wgsl`; set by `registerPolicyLoss`. */
  ofBatch?: CustomLoss;
}

/**
 * A mini-batch as a custom loss sees it, independent of micro-batches. All arrays are [E]: the entries of samples with
 * a trained token, sample by sample.
 */
export interface CustomLossRows extends PolicyLossInputs {
  /** log-prob of the token under the policy being trained, natural log. */
  logProbs: Float32Array;
  /** Entropy of the policy at the entry, in nats. */
  entropy: Float32Array;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1]. */
  seqStart: Uint32Array;
}

/** Result of a custom loss for E tokens. */
export interface CustomLossResult {
  /** [E] d loss / d logProbs, including `weights`. The KL and entropy terms of the config are added to it. */
  dLogProbs: Float32Array;
  /** [E] d loss / d entropy. Default: 0. */
  dEntropy?: Float32Array;
  /** Value of the loss, reported as actor/pg_loss. */
  loss?: number;
  /** Additional metrics by name. */
  metrics?: Readonly<Record<string, number>>;
}

/** A policy loss as a function of a mini-batch. The KL and entropy terms of the config are still added. */
export type CustomLoss = (rows: CustomLossRows) => CustomLossResult;

/** Like CustomLoss, but can return a promise, for example if the loss runs in a sandbox. */
export type AsyncCustomLoss = (rows: CustomLossRows) => CustomLossResult | Promise<CustomLossResult>;

/** Term that a sequence-level loss sums over the trained tokens of a sequence. */
interface SequenceTerm<D extends LossDefaults = LossDefaults> {
  of(numbers: LossNumbers<D>, token: TokenRow): number;
  /**
   * `fn sequenceTerm(logRatio: f32, advantage: f32) -> f32`, the same term in f32. Undefined if the loss has no WGSL.
   */
  wgsl?: string;
}

/**
 * Returns the loss unchanged; types its row by the names of its parameters. @typeParam D names and defaults in `numbers`
 */
export const defineLoss = <const D extends LossDefaults = Record<never, never>>(loss: PolicyLoss<D>): PolicyLoss<D> =>
  loss;

/** Placeholder for the policy loss if a function replaces it. Only the KL and entropy terms remain. */
export const NO_LOSS = defineLoss({ name: 'custom', reports: [], row: () => ({ loss: 0, grad: 0 }) });

/**
 * Returns a loss with its parameters filled in, as an engine receives it, without KL and entropy terms. `given` can
 * contain parameters that the loss does not read.
 */
export function lossSpec(
  loss: PolicyLoss,
  lossMode: string,
  { clipRatioLow, clipRatioHigh, clipRatioC }: ClipRange,
  given: Readonly<Record<string, number | undefined>> = {},
): PolicyLossSpec {
  const clip = { clipRatioLow, clipRatioHigh, clipRatioC };
  const doubled = Object.keys(loss.numbers ?? {}).find((name) => Object.hasOwn(clip, name));
  if (doubled)
    throw new InputError(
      `Policy loss "${lossMode}" has a number "${doubled}", which every loss has, from actor.${doubled}. Leave it out.`,
    );
  const ownNumbers: Record<string, number> = {};
  for (const [name, byDefault] of Object.entries(loss.numbers ?? {}))
    ownNumbers[name] = given[name] ?? (typeof byDefault === 'function' ? byDefault(clip) : byDefault);
  return {
    lossMode,
    numbers: { ...clip, ...ownNumbers },
    wgsl: loss.wgsl ?? '',
    ...(loss.sequenceTerm?.wgsl !== undefined && { sequenceTermWgsl: loss.sequenceTerm.wgsl }),
    klLossCoef: 0,
    klLossType: 'k3',
    entropyCoeff: 0,
  };
}

/** Entries in sample order; every array but `seqStart` is [E]. */
export interface LossRows {
  /** [E] log-prob under the policy that is trained, natural log. */
  logp: ArrayLike<number>;
  /** [E] log-prob under the policy in the ratio's denominator. */
  oldLogp: ArrayLike<number>;
  /** [E] advantage of each token. */
  advantages: ArrayLike<number>;
  /** Aggregation x mask x importance weight, from the whole mini-batch: `lossWeights()`. */
  weights: ArrayLike<number>;
  /** 1 = trained. Default: all. Metrics and sequence statistics count these tokens. */
  mask?: ArrayLike<number>;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1]. */
  seqStart: ArrayLike<number>;
  /** Log-prob under the frozen reference; needed if spec.klLossCoef is not 0. */
  refLogp?: ArrayLike<number>;
  /** Aggregation x mask of the KL term, which has no importance weight. Default: `weights`. */
  klWeights?: ArrayLike<number>;
  /** Result of `select` over the full mini-batch. Default: computed from these rows. */
  selected?: ArrayLike<number>;
}

/** Limits x to [low, high]. */
export const clamp = (x: number, low: number, high: number): number => (x < low ? low : x > high ? high : x);

/** Bound to which verl's token-level losses clamp |log ratio|. */
export const LOG_RATIO_CLAMP = 20;

/** Returns the clamped log ratio, and true if a gradient passes through the clamp (it does on the bound itself). */
export function clampedLogRatio(token: TokenRow): { logRatio: number; passes: boolean } {
  const raw = token.logp - token.oldLogp;
  return { logRatio: clamp(raw, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP), passes: Math.abs(raw) <= LOG_RATIO_CLAMP };
}

/** Per-token term whose sum over a sequence is the sequence's log ratio. */
export const SEQUENCE_LOG_RATIO: SequenceTerm = {
  of: (_numbers, token) => token.logp - token.oldLogp,
  wgsl: 'fn sequenceTerm(logRatio: f32, advantage: f32) -> f32 { return logRatio; }',
};
