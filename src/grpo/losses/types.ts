/**
 * A policy loss: a pure function of one trained token, and the gradient of its value.
 *
 * Every loss of this folder is one file, written for one token, twice: `row` returns the value l and g = d l / d logp in
 * float64, `wgsl` returns g in f32 and is what trains. The scalar loss of a mini-batch is sum_e weights[e] * l_e, with the
 * weights of `aggregate.ts`, so the gradient is weights[e] * g_e whatever the loss. A loss that works on whole sequences
 * (GSPO, GMPO, VESPO) also names a per-token term; its sum over the trained tokens of the sequence is handed to the row.
 */

import { InputError } from '../../errors.ts';
import type { PolicyLossSpec } from '../../model/engine.ts';

/** One trained token. All logs are natural. */
export interface TokenRow {
  /** log pi_theta(token): the policy being trained. */
  logp: number;
  /** log-prob under the policy the ratio is taken against. */
  oldLogp: number;
  /** Advantage of the token. */
  advantage: number;
  /** True if the loss's own `select` picked this token (clip-cov, kl-cov). */
  selected: boolean;
}

/** Statistics of the token's sequence; all 0 for losses without a `sequenceTerm`. */
export interface SequenceStats {
  /** Trained tokens. */
  length: number;
  /** Sum of `sequenceTerm` over the trained tokens. */
  sum: number;
  /** Sum of the advantages over the trained tokens. */
  advantageSum: number;
}

/** What a row gives of one token. */
export interface TokenLoss {
  /** To minimise; multiplied by the token's weight. */
  loss: number;
  /** d loss / d logp of this token, through every path (a sequence's mean included), for weights that are equal within a sequence. */
  grad: number;
  /** True if the upper (or only) clip acted: averaged into `actor/pg_clipfrac`. Absent = it did not. */
  clipped?: boolean;
  /** True if the lower or dual clip acted: averaged into `actor/pg_clipfrac_lower`. Absent = it did not. */
  clippedLower?: boolean;
  /** This token's term of `actor/ppo_kl`; absent = oldLogp - logp. */
  kl?: number;
  /** Numbers of the loss's own, reported by these names as means over trained tokens. */
  metrics?: Readonly<Record<string, number>>;
}

export const LOSS_METRICS = ['actor/pg_clipfrac', 'actor/ppo_kl', 'actor/pg_clipfrac_lower'] as const;
export type LossMetric = (typeof LOSS_METRICS)[number];

/** How token losses become one number; see `aggregate.ts`. */
export type LossAggMode =
  | 'token-mean'
  | 'token-sum'
  | 'seq-mean-token-sum'
  | 'seq-mean-token-mean'
  | 'seq-mean-token-sum-norm';

/** The clip range of `actor`, which every loss may read. */
export interface ClipRange {
  clipRatioLow: number;
  clipRatioHigh: number;
  /** Dual-clip constant c (arXiv:1912.09729); > 1. */
  clipRatioC: number;
}

/** Defaults of a loss's own numbers by name; a function where the default follows the clip range. */
type LossDefaults = Readonly<Record<string, number | ((clip: ClipRange) => number)>>;

/** Numbers that a row reads: the clip range, and the loss's own numbers as the config has them or by default. */
export type LossNumbers<D extends LossDefaults = LossDefaults> = Readonly<Record<keyof D | keyof ClipRange, number>>;

/** A policy loss as a row: the value and the gradient of one token. `defineLoss` makes one whose numbers are typed. */
export interface PolicyLoss<D extends LossDefaults = LossDefaults> {
  /** Errors call a loss that is not in `POLICY_LOSSES` by it. */
  name?: string;
  /** Where it was published. */
  paper?: string;
  /** Aggregation that replaces the configured one, as the published method demands. */
  aggregation?: LossAggMode | 'seq-geo-mean';
  /**
   * True if a token whose advantage is 0 has value 0 and gradient 0, whatever the policy: samples of such tokens alone
   * need no forward and backward (`actor.skipZeroAdvantages`). Absent = not known, and all are computed.
   */
  zeroAtZeroAdvantage?: boolean;
  /** Which of verl's metrics this loss reports; absent = all. */
  reports?: readonly LossMetric[];
  /** Its own numbers, keys of `actor.policyLoss`, with their defaults. */
  numbers?: D;
  /** The loss of one token and its gradient. */
  row(numbers: LossNumbers<D>, token: TokenRow, sequence: SequenceStats): TokenLoss;
  /**
   * `fn rowGrad(t: Token) -> f32`, the row's gradient. `Token` is in kernels/policy_loss.wgsl; `params` has the numbers by
   * the names they have here. Absent = `row` is what trains, on the controller's thread: a second forward pass an update.
   */
  wgsl?: string;
  /** Present = sequence-level loss. */
  sequenceTerm?: SequenceTerm<D>;
  /** Picks tokens by a statistic of the whole batch it is given; 1 = selected. All arrays [E]. */
  select?(numbers: LossNumbers<D>, rows: LossRows): Uint8Array;
}

/** The term that a sequence-level loss sums over the trained tokens of a sequence. */
interface SequenceTerm<D extends LossDefaults = LossDefaults> {
  of(numbers: LossNumbers<D>, token: TokenRow): number;
  /** `fn sequenceTerm(logRatio: f32, advantage: f32) -> f32`, the same in f32; absent if the loss has no WGSL. */
  wgsl?: string;
}

/**
 * A loss as it is; types its row by the names of its numbers.
 * @typeParam D the numbers, as `numbers` gives them
 */
export const defineLoss = <const D extends LossDefaults = Record<never, never>>(loss: PolicyLoss<D>): PolicyLoss<D> =>
  loss;

/** A loss with its numbers filled in, as an engine takes it, without KL and entropy terms. `given` may hold more than it reads. */
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
  /** [E] log-prob under the policy that the ratio is taken against. */
  oldLogp: ArrayLike<number>;
  /** [E] advantage of each token. */
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

export const clamp = (x: number, low: number, high: number): number => (x < low ? low : x > high ? high : x);

/** |log ratio| beyond which verl's token-level losses stop following it. */
export const LOG_RATIO_CLAMP = 20;

/** The clamped log ratio and whether a gradient still passes through the clamp (it does on the bound itself). */
export function clampedLogRatio(token: TokenRow): { logRatio: number; passes: boolean } {
  const raw = token.logp - token.oldLogp;
  return { logRatio: clamp(raw, -LOG_RATIO_CLAMP, LOG_RATIO_CLAMP), passes: Math.abs(raw) <= LOG_RATIO_CLAMP };
}

/** The log ratio of a whole sequence. */
export const SEQUENCE_LOG_RATIO: SequenceTerm = {
  of: (_numbers, token) => token.logp - token.oldLogp,
  wgsl: 'fn sequenceTerm(logRatio: f32, advantage: f32) -> f32 { return logRatio; }',
};
