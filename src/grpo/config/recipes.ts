/**
 * One name for a published method: `algorithm: dapo` sets loss, advantage, aggregation and clip range together, as its
 * paper does. Anything the user sets wins over the recipe; `resolveRecipe` returns the full set, which the run prints.
 */

import type { PolicyLossSpec } from '../../model/engine.ts';
import type { AdvantageEstimator, ScaleRewards } from '../advantages/index.ts';
import { LOSS_AGG_MODES } from '../losses/aggregate.ts';
import { policyLossOf, type LossAggMode } from '../losses/index.ts';

/** What an algorithm name stands for. Names are verl's in camelCase. */
export interface AlgorithmSettings extends PolicyLossSpec {
  lossAggMode: LossAggMode;
  advEstimator: AdvantageEstimator;
  /** 'group' = divide by the group's std, 'batch' = by that of the batch, 'none' = not at all (Dr. GRPO). */
  scaleRewards: ScaleRewards;
  /** 1 = replace groups whose rewards are all equal by new ones (DAPO's dynamic sampling). */
  filterGroups: number;
  /** Tokens before the limit from which a growing penalty is taken off the reward (DAPO); 0 = none. */
  overlongBufferLen: number;
  /** 1 = samples cut off at the limit are not trained on (DAPO's overlong filtering). */
  maskTruncated: number;
}

/** verl's actor defaults; KL and entropy terms are off. */
const BASE: AlgorithmSettings = {
  lossMode: 'vanilla',
  lossAggMode: 'token-mean',
  advEstimator: 'grpo',
  scaleRewards: 'group',
  clipRatioLow: 0.2,
  clipRatioHigh: 0.2,
  clipRatioC: 3,
  klLossCoef: 0,
  klLossType: 'k3',
  entropyCoeff: 0,
  filterGroups: 0,
  overlongBufferLen: 0,
  maskTruncated: 0,
};

type Overrides = Partial<{ [K in keyof AlgorithmSettings]: AlgorithmSettings[K] | undefined }>;

/** Each row: what the method changes. The clip of `vanilla` stays around for on-policy methods, where it never acts. */
export const RECIPES: Readonly<Record<string, Overrides>> = {
  /** arXiv:2402.03300; the paper's own KL (0.04, k3) is off as in most runs since: set klLossCoef. */
  grpo: { lossAggMode: 'seq-mean-token-mean' },
  /** arXiv:2503.20783: no std, no length bias. */
  dr_grpo: { lossAggMode: 'seq-mean-token-sum-norm', scaleRewards: 'none' },
  /** arXiv:2503.14476: clip-higher, token-mean, dynamic sampling; its overlong shaping depends on the length limit. */
  dapo: { clipRatioHigh: 0.28, clipRatioC: 10, filterGroups: 1 },
  /** arXiv:2507.18071: a ratio per sequence, so a clip range 1000 times narrower. */
  gspo: { lossMode: 'gspo', lossAggMode: 'seq-mean-token-mean', clipRatioLow: 3e-4, clipRatioHigh: 4e-4 },
  /** arXiv:2506.13585: no lower bound; upper weight 1 + clipRatioHigh = 5 is TRL's epsilon_high of 5. Or set wMax. */
  cispo: { lossMode: 'cispo', clipRatioLow: 1, clipRatioHigh: 4 },
  /** arXiv:2511.20347. */
  sapo: { lossMode: 'sapo', lossAggMode: 'seq-mean-token-mean', tauPos: 1.0, tauNeg: 1.05 },
  /** arXiv:2507.20673; the clip range is in log space. */
  gmpo: { lossMode: 'geo_mean', lossAggMode: 'seq-mean-token-mean', clipRatioLow: 0.4, clipRatioHigh: 0.4 },
  /** arXiv:2504.02546. */
  gpg: { lossMode: 'gpg', advEstimator: 'gpg' },
  /** arXiv:2402.14740. */
  rloo: { advEstimator: 'rloo', lossAggMode: 'seq-mean-token-sum' },
  /** arXiv:2501.03262, without and with the group baseline. */
  reinforce_plus_plus: { advEstimator: 'reinforce_plus_plus' },
  reinforce_plus_plus_baseline: { advEstimator: 'reinforce_plus_plus_baseline' },
  /** arXiv:2505.23585. */
  opo: { advEstimator: 'opo' },
  /** arXiv:2310.10505: needs one greedy sample a prompt for its baseline. */
  remax: { advEstimator: 'remax' },
  /** arXiv:2503.19595. */
  grpo_passk: { advEstimator: 'grpo_passk' },
  /** arXiv:2601.05242: several rewards, normalised apart. */
  gdpo: { advEstimator: 'gdpo' },
  /** arXiv:2602.04879: thresholds on probability (TV) or KL, ratio truncated at 20. */
  dppo_tv: { lossMode: 'dppo_tv', clipRatioLow: 0.15, clipRatioHigh: 0.15, clipRatioC: 20 },
  dppo_kl: { lossMode: 'dppo_kl', clipRatioLow: 0.05, clipRatioHigh: 0.05, clipRatioC: 20 },
  /** arXiv:2505.22617. */
  clip_cov: { lossMode: 'clip_cov', clipRatioLow: 1, clipRatioHigh: 1, clipCovRatio: 2e-4, clipCovLb: 1, clipCovUb: 5 },
  kl_cov: { lossMode: 'kl_cov', klCovRatio: 2e-3, ppoKlCoef: 1 },
  /** arXiv:2405.19107. */
  dro: { lossMode: 'dro', droBeta: 0.1 },
  luspo: { lossMode: 'luspo', lossAggMode: 'seq-mean-token-sum', clipRatioLow: 3e-4, clipRatioHigh: 4e-4 },
  vespo: { lossMode: 'vespo' },
  /** Plain policy gradient on the group-normalised advantage, importance weight per token. */
  reinforce: { lossMode: 'reinforce', rolloutIs: 'token', rolloutIsThreshold: 2, bypassMode: 1 },
  /** Leave-one-out credit per turn, for tasks with rewards per turn. */
  turn_loo: { advEstimator: 'turn_loo' },
};

/**
 * The full settings of an algorithm; keys of `overrides` that are undefined do not count.
 * Throws a RangeError that lists what is known for an unknown algorithm, loss or aggregation.
 */
export function resolveRecipe(algorithm: string, overrides: Overrides = {}): AlgorithmSettings {
  if (!Object.hasOwn(RECIPES, algorithm)) {
    throw new RangeError(`Unknown algorithm "${algorithm}"; known are ${Object.keys(RECIPES).join(', ')}.`);
  }
  const chosen = Object.entries(overrides).filter(([, value]) => value !== undefined);
  const settings = { ...BASE, ...RECIPES[algorithm], ...Object.fromEntries(chosen) } as AlgorithmSettings;
  policyLossOf(settings.lossMode);
  if (!LOSS_AGG_MODES.includes(settings.lossAggMode)) {
    throw new RangeError(`Unknown lossAggMode "${settings.lossAggMode}"; known are ${LOSS_AGG_MODES.join(', ')}.`);
  }
  if (!(settings.clipRatioC > 1)) {
    throw new RangeError(`clipRatioC is ${settings.clipRatioC}; the dual-clip bound must be above 1, e.g. 3.`);
  }
  return settings;
}

/** The resolved set as printed at the start of a run: one `key: value` a line, `*` where it is not verl's default. */
export function describeRecipe(algorithm: string, settings: AlgorithmSettings): string {
  const lines = Object.entries(settings).map(([key, value]) => {
    const mark = BASE[key] === value ? ' ' : '*';
    return `  ${mark} ${key}: ${value}`;
  });
  return [`algorithm: ${algorithm}`, ...lines].join('\n');
}
