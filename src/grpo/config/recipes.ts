/**
 * One name for a published method: `algorithm.name: dapo` sets loss, advantage, aggregation and clip range together, as
 * its paper does. A recipe is a part of a config. The user's settings win over it, and it wins over `VERL_DEFAULTS`.
 * The run folder's config.yaml holds the result.
 */

import { clipCov } from '../losses/cov.ts';
import { sapo } from '../losses/sapo.ts';

/** verl's defaults of the keys that recipes set. KL and entropy terms are off. */
export const VERL_DEFAULTS = {
  actor: {
    policyLoss: { lossMode: 'vanilla' },
    lossAggMode: 'token-mean',
    clipRatioLow: 0.2,
    clipRatioHigh: 0.2,
    clipRatioC: 3,
    entropyCoeff: 0,
    klLossCoef: 0,
    klLossType: 'k3',
  },
  algorithm: {
    advEstimator: 'grpo',
    scaleRewards: 'group',
    maskTruncated: false,
    filterGroups: { enable: false },
  },
} as const;

/**
 * Settings that each method changes. On-policy methods keep the clip range of `vanilla`, because on-policy ratios are
 * never clipped.
 */
export const RECIPES = {
  /** arXiv:2402.03300. The paper's KL (0.04, k3) is off, as in most later runs; set klLossCoef to use it. */
  grpo: { actor: { lossAggMode: 'seq-mean-token-mean' } },
  /** arXiv:2503.20783: no std, no length bias. */
  dr_grpo: { actor: { lossAggMode: 'seq-mean-token-sum-norm' }, algorithm: { scaleRewards: 'none' } },
  /**
   * arXiv:2503.14476: clip-higher, token-mean, dynamic sampling. Its overlong shaping is not set here, because it
   * depends on the length limit.
   */
  dapo: { actor: { clipRatioHigh: 0.28, clipRatioC: 10 }, algorithm: { filterGroups: { enable: true } } },
  /** arXiv:2507.18071: a ratio per sequence, so a clip range 1000 times narrower. */
  gspo: {
    actor: {
      policyLoss: { lossMode: 'gspo' },
      lossAggMode: 'seq-mean-token-mean',
      clipRatioLow: 3e-4,
      clipRatioHigh: 4e-4,
    },
  },
  /**
   * arXiv:2506.13585: no lower bound; the upper bound of the weight, 1 + clipRatioHigh = 5, is TRL's epsilon_high of 5.
   * `wMax` sets it directly.
   */
  cispo: { actor: { policyLoss: { lossMode: 'cispo' }, clipRatioLow: 1, clipRatioHigh: 4 } },
  /** arXiv:2511.20347. */
  sapo: { actor: { lossAggMode: 'seq-mean-token-mean', policyLoss: { lossMode: 'sapo', ...sapo.numbers } } },
  /** arXiv:2507.20673; the clip range applies to log ratios. */
  gmpo: {
    actor: {
      policyLoss: { lossMode: 'geo_mean' },
      lossAggMode: 'seq-mean-token-mean',
      clipRatioLow: 0.4,
      clipRatioHigh: 0.4,
    },
  },
  /** arXiv:2504.02546. */
  gpg: { actor: { policyLoss: { lossMode: 'gpg' } }, algorithm: { advEstimator: 'gpg' } },
  /** arXiv:2402.14740. */
  rloo: { actor: { lossAggMode: 'seq-mean-token-sum' }, algorithm: { advEstimator: 'rloo' } },
  /** REINFORCE++, arXiv:2501.03262, without and with the group baseline. */
  reinforce_plus_plus: { algorithm: { advEstimator: 'reinforce_plus_plus' } },
  reinforce_plus_plus_baseline: { algorithm: { advEstimator: 'reinforce_plus_plus_baseline' } },
  /** arXiv:2505.23585. */
  opo: { algorithm: { advEstimator: 'opo' } },
  /** arXiv:2310.10505: needs one greedy sample per prompt for its baseline. */
  remax: { algorithm: { advEstimator: 'remax' } },
  /** arXiv:2503.19595. */
  grpo_passk: { algorithm: { advEstimator: 'grpo_passk' } },
  /** arXiv:2601.05242: several rewards, normalised separately. */
  gdpo: { algorithm: { advEstimator: 'gdpo' } },
  /** arXiv:2602.04879: thresholds on the change of a probability (TV) or on its KL, ratio truncated at 20. */
  dppo_tv: { actor: { policyLoss: { lossMode: 'dppo_tv' }, clipRatioLow: 0.15, clipRatioHigh: 0.15, clipRatioC: 20 } },
  dppo_kl: { actor: { policyLoss: { lossMode: 'dppo_kl' }, clipRatioLow: 0.05, clipRatioHigh: 0.05, clipRatioC: 20 } },
  /** arXiv:2505.22617. */
  clip_cov: { actor: { clipRatioLow: 1, clipRatioHigh: 1, policyLoss: { lossMode: 'clip_cov', ...clipCov.numbers } } },
  kl_cov: { actor: { policyLoss: { lossMode: 'kl_cov', klCovRatio: 2e-3, ppoKlCoef: 1 } } },
  /** arXiv:2405.19107. */
  dro: { actor: { policyLoss: { lossMode: 'dro', droBeta: 0.1 } } },
  /** arXiv:2602.05261: GSPO without its length bias. */
  luspo: {
    actor: {
      policyLoss: { lossMode: 'luspo' },
      lossAggMode: 'seq-mean-token-sum',
      clipRatioLow: 3e-4,
      clipRatioHigh: 4e-4,
    },
  },
  /** arXiv:2602.10693. */
  vespo: { actor: { policyLoss: { lossMode: 'vespo' } } },
  /** Plain policy gradient on the group-normalised advantage, importance weight per token. */
  reinforce: {
    actor: { policyLoss: { lossMode: 'reinforce' } },
    algorithm: { rolloutCorrection: { rolloutIs: 'token', rolloutIsThreshold: 2, bypassMode: true } },
  },
  /** arXiv:2602.02710: rewards minus the group's mean, divided by the mean; for rewards of 0 and above. */
  max_rl: { algorithm: { advEstimator: 'max_rl' } },
  /** SPIRAL, arXiv:2506.24119: a running baseline per role, for self-play. */
  rae: { algorithm: { advEstimator: 'rae' } },
  /** Leave-one-out advantages per turn, for tasks that reward single turns. */
  turn_loo: { algorithm: { advEstimator: 'turn_loo' } },
} as const;

/** Recipe used if the user names none. */
export const DEFAULT_RECIPE: keyof typeof RECIPES = 'grpo';
