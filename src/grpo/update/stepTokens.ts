/**
 * Computes an update's inputs for each token from the scored samples of a step: final rewards (score, overlong penalty,
 * KL), masks, advantages, importance weights. All on the main thread, in sample order.
 */

import { InputError } from '../../errors.ts';
import {
  computeAdvantages,
  type AdvantageInputs,
  type CustomAdvantage,
  outcomeRewards,
  ownAdvantage,
  ownAdvantages,
  rae,
  type RoleBaselines,
} from '../advantages/index.ts';
import type { TrainConfig } from '../config/types.ts';
import { klPenalty } from '../losses/kl.ts';
import { foldImportanceWeights } from '../losses/vespo.ts';
import { meanTrained, type Metrics } from '../metrics.ts';
import { rolloutCorrection } from '../correction/correct.ts';
import { correctionSettings } from '../correction/settings.ts';
import { lengthPenalties, maskTruncated, overlongPenalty } from '../advantages/shaping.ts';
import { turnCount, turnIndices } from '../advantages/turns.ts';
import type { Sample, SampleTokens } from './batch.ts';

/**
 * Inputs that some settings need in addition to the samples. Log-probs are one array per sample, as long as its
 * response.
 */
export interface StepExtras {
  /** Log-probs of the frozen reference, for KL terms. */
  refLogProbs?: ArrayLike<number>[] | undefined;
  /**
   * Log-probs of the trainer's policy before its first update. In bypass mode of rollout correction, the sampler's
   * log-probs replace them.
   */
  oldLogProbs?: ArrayLike<number>[] | undefined;
  /** For remax: [N] reward of the greedy answer to the sample's prompt. */
  baselines?: ArrayLike<number> | undefined;
  /** Current KL coefficient if klCtrl is adaptive. Default: klCtrl.klCoef. */
  klCoef?: number | undefined;
  /** For rae: running mean reward of each role. */
  roleBaselines?: RoleBaselines | undefined;
  /** A custom estimator that replaces the configured one. */
  advantage?: CustomAdvantage | undefined;
  /** For trajectories of several rows: [N] their `keptMasks`, and the number of response tokens of the longest row. */
  rows?: { kept: ArrayLike<number>[]; longest: number[] };
}

export interface StepTokens extends SampleTokens {
  /** [N] rewards from which the advantages were computed. */
  rewards: number[];
  /** Importance weights, one array per sample, for `lossWeights`; undefined if rollout correction is off. */
  isWeights?: Float64Array[];
  /** For rae: role baselines for the next step. */
  roleBaselines?: RoleBaselines;
  metrics: Metrics;
}

type Settings = Pick<TrainConfig, 'actor' | 'algorithm' | 'data' | 'reward'>;

/**
 * Returns rewards, masks, advantages and importance weights of a step. Sets `advantage` of each sample to its mean
 * advantage.
 */
export function stepTokens(config: Settings, samples: readonly Sample[], extras: StepExtras = {}): StepTokens {
  const { actor, algorithm } = config;
  const rolloutLogp = samples.map(({ trajectory }) => trajectory.logProbs);
  const sampled = samples.map(({ trajectory }) => trajectory.mask);
  const kept = extras.rows?.kept ?? keptMasks(config, samples);
  const { masks, isWeights, metrics } = correct(config, extras, rolloutLogp, rewarded(kept, samples));
  const oldLogProbs = extras.oldLogProbs ?? rolloutLogp;
  const kl = algorithm.useKlInReward
    ? klInReward({ ...algorithm, klClamp: actor.klClamp }, extras, oldLogProbs, sampled)
    : undefined;
  const groups = samples.map(({ group }) => group);
  const tooLong = tooLongOf(config, samples);
  const rewards = finalRewards(config, samples, tooLong, kl?.penalties, extras.rows?.longest);
  const { advantages, roleBaselines } = advantagesOf(
    config,
    samples,
    { rewards, groups, masks, sampled },
    extras,
    kl?.penalties,
  );
  samples.forEach((sample, s) => (sample.advantage = meanTrained(advantages[s], masks[s])));
  // VESPO's sequence weight contains the importance weights, so they do not also multiply the loss.
  const inside = isWeights && actor.policyLoss.lossMode === 'vespo';
  return {
    masks,
    oldLogProbs: inside ? foldImportanceWeights(oldLogProbs, isWeights, masks) : oldLogProbs,
    advantages,
    rewards,
    ...(isWeights && !inside ? { isWeights } : {}),
    ...(extras.refLogProbs ? { refLogProbs: extras.refLogProbs } : {}),
    ...(roleBaselines && { roleBaselines }),
    metrics: {
      ...metrics,
      ...kl?.metrics,
      ...(tooLong ? { 'training/length_penalty': sum(tooLong) / samples.length } : {}),
      ...keptMass(samples),
      ...missingRewards(samples),
    },
  };
}

/** Returns the masks of the sampled tokens, those of truncated rows set to 0 if `algorithm.maskTruncated` is on. */
export function keptMasks({ algorithm }: Pick<Settings, 'algorithm'>, rows: readonly Sample[]): ArrayLike<number>[] {
  const sampled = rows.map(({ trajectory }) => trajectory.mask);
  const reasons = rows.map(({ trajectory }) => trajectory.stopReason);
  return algorithm.maskTruncated ? maskTruncated(sampled, reasons) : sampled;
}

/** [N] final rewards: the score of each sample, minus its length penalties and the KL of its tokens. */
function finalRewards(
  settings: Settings,
  samples: readonly Sample[],
  tooLong: ArrayLike<number> | undefined,
  klPenalties?: readonly Float64Array[],
  longest?: readonly number[],
): number[] {
  return samples.map((sample, s) => {
    const shaped = scoreOf(settings, sample, longest?.[s]) - (tooLong?.[s] ?? 0);
    return shaped - (klPenalties ? sum(klPenalties[s]) : 0);
  });
}

/** Returns a sample's score with the penalty on an overlong response. */
export function scoreOf(
  { data: { maxResponseLength }, reward: { overlongBuffer } }: Pick<Settings, 'data' | 'reward'>,
  { reward, trajectory }: Pick<Sample, 'reward' | 'trajectory'>,
  length = trajectory.responseIds.length,
): number {
  const { len: bufferLen, penaltyFactor } = overlongBuffer;
  return reward.score + overlongPenalty(length, { maxResponseLength, bufferLen, penaltyFactor });
}

/** [N] rewards of the samples of whole groups without the KL: the scores, minus the penalties on length. */
export function rewardsWithoutKl(config: Settings, samples: readonly Sample[]): number[] {
  return finalRewards(config, samples, tooLongOf(config, samples));
}

/** Returns one advantage per token, by the custom or the configured estimator, and the new role baselines. */
function advantagesOf(
  config: Settings,
  samples: readonly Sample[],
  outcome: { rewards: number[]; groups: number[]; masks: ArrayLike<number>[]; sampled: ArrayLike<number>[] },
  extras: StepExtras,
  klPenalties: readonly Float64Array[] | undefined,
): { advantages: ArrayLike<number>[]; roleBaselines?: Record<string, number> } {
  const { rewards, sampled } = outcome;
  const { advEstimator, scaleRewards, gamma, raeDecay } = config.algorithm;
  const components = advEstimator === 'gdpo' ? rewardComponents(samples, config) : undefined;
  const roles = advEstimator === 'rae' ? rolesOf(samples) : undefined;
  const inputs: AdvantageInputs = {
    ...outcome,
    ...(klPenalties && { tokenRewards: tokenRewardsOf(rewards, klPenalties, sampled) }),
    ...(components && { components: components.values }),
    ...(advEstimator === 'turn_loo' && { turnRewards: turnRewardsOf(samples, rewards, klPenalties) }),
    ...(roles && { roles, roleBaselines: extras.roleBaselines }),
    ...(extras.baselines && { baselines: extras.baselines }),
  };
  const options = { scaleRewards, gamma, raeDecay, ...(components && { rewardWeights: components.weights }) };
  const own = extras.advantage ?? ownAdvantage(advEstimator);
  const advantages = own ? ownAdvantages(own, inputs, samples) : computeAdvantages(advEstimator, inputs, options);
  if (!roles) return { advantages };
  return { advantages, roleBaselines: rae(rewards, roles, extras.roleBaselines, raeDecay).baselines };
}

/** [N] penalties that `algorithm.lengthPenalty` subtracts from the scores. */
function tooLongOf({ algorithm: { lengthPenalty } }: Settings, samples: readonly Sample[]): Float64Array | undefined {
  if (lengthPenalty.type !== 'linear') return undefined;
  const groups = samples.map(({ group }) => group);
  const scores = samples.map(({ reward }) => reward.score);
  const lengths = samples.map(({ trajectory: { promptIds, responseIds, mask, numTurns } }) => {
    const outputTokens = sum(mask);
    return { outputTokens, inputTokens: promptIds.length + responseIds.length - outputTokens, turns: numTurns };
  });
  return lengthPenalties(scores, groups, lengths, lengthPenalty);
}

const rolesOf = (samples: readonly Sample[]): string[] => samples.map(({ problem }) => problem.role ?? 'policy');

/** Sets the masks of samples without a reward to 0, so that their tokens are not trained or counted. */
function rewarded(masks: ArrayLike<number>[], samples: readonly Sample[]): ArrayLike<number>[] {
  return masks.map((mask, s) => (Number.isNaN(samples[s].reward.score) ? new Uint8Array(mask.length) : mask));
}

function missingRewards(samples: readonly Sample[]): Metrics {
  const missing = samples.filter(({ reward }) => Number.isNaN(reward.score)).length;
  if (missing === 0) return {};
  const faults = samples.flatMap(({ fault }) => fault ?? []);
  const metrics = {
    'training/missing_reward_share': missing / samples.length,
    ...(faults.length > 0 && { 'training/faulty_samples': faults.length }),
  };
  if (missing < samples.length) return metrics;
  const why =
    faults.length > 0
      ? `trainer.onError: skip skipped ${faults.length} samples, the first because: ${faults[0].message}`
      : `all scores are NaN${toldBy(samples[0])}.`;
  throw new InputError(`None of the step's ${missing} samples has a reward: ${why} Look at the task's reward.`);
}

/** Quotes the texts of a sample's reward: a reward that cannot score a sample says why in one of them. */
function toldBy({ reward: { extra = {} } }: Sample): string {
  const told = Object.entries(extra).filter(([, value]) => typeof value === 'string');
  return told.length === 0 ? '' : ` (the first sample: ${told.map(([name, text]) => `${name}: ${text}`).join('; ')})`;
}

/**
 * Reports the share of probability mass that truncation (top-k, top-p, min-p) kept. The sampler's true log-prob is then
 * logProbs - logMass, and the trainer's would be reduced by the same recorded mass. In a ratio the two cancel, so both
 * log-probs stay over the full vocabulary. `training/kept_mass_mean` is the factor by which a ratio would be wrong if
 * only one side were corrected.
 */
function keptMass(samples: readonly Sample[]): Metrics {
  let [sum, count, cut] = [0, 0, false];
  for (const { trajectory } of samples) {
    trajectory.logMass.forEach((logMass, t) => {
      if (trajectory.mask[t] === 0) return;
      [sum, count, cut] = [sum + Math.exp(logMass), count + 1, cut || logMass !== 0];
    });
  }
  return cut ? { 'training/kept_mass_mean': sum / count } : {};
}

interface Corrected {
  masks: ArrayLike<number>[];
  isWeights?: Float64Array[];
  metrics: Metrics;
}

function correct(
  config: Settings,
  { oldLogProbs: oldLogp }: StepExtras,
  rolloutLogp: ArrayLike<number>[],
  masks: ArrayLike<number>[],
): Corrected {
  if (!oldLogp) return { masks, metrics: {} };
  return rolloutCorrection(correctionSettings(config), { oldLogp, rolloutLogp, masks });
}

/**
 * verl's apply_kl_penalty: `penalties` hold coefficient x KL of each sampled token; the metric is the mean over samples
 * of each sample's mean.
 */
function klInReward(
  algorithm: Settings['algorithm'] & Pick<Settings['actor'], 'klClamp'>,
  extras: StepExtras,
  oldLogp: ArrayLike<number>[],
  masks: ArrayLike<number>[],
): { penalties: Float64Array[]; metrics: Metrics } {
  const ref = extras.refLogProbs;
  if (!ref) throw new RangeError('algorithm.useKlInReward needs the reference log-probs of the samples.');
  const { type, klCoef } = algorithm.klCtrl;
  const coef = type === 'adaptive' ? (extras.klCoef ?? klCoef) : klCoef;
  const kls = masks.map((mask, s) =>
    Float64Array.from(mask, (m, t) => {
      if (m === 0) return 0;
      const options = { oldLogp: oldLogp[s][t], valueClamp: algorithm.klClamp ?? Infinity };
      return klPenalty(algorithm.klPenalty, oldLogp[s][t], ref[s][t], options).value;
    }),
  );
  const current = kls.reduce((total, kl, s) => total + meanTrained(kl, masks[s]), 0) / Math.max(kls.length, 1);
  return {
    penalties: kls.map((kl) => kl.map((value) => coef * value)),
    metrics: { 'actor/reward_kl_penalty': current, 'actor/reward_kl_penalty_coeff': coef },
  };
}

/** Reward of each token: its KL penalty, negative; the last sampled token also gets the sample's reward before KL. */
function tokenRewardsOf(
  rewards: readonly number[],
  penalties: readonly Float64Array[],
  sampled: readonly ArrayLike<number>[],
): Float64Array[] {
  const withoutKl = rewards.map((reward, s) => reward + sum(penalties[s]));
  return outcomeRewards(withoutKl, sampled).map((values, s) => values.map((r, t) => r - penalties[s][t]));
}

/**
 * Named rewards that gdpo normalises one by one, and their weights. The names are those in gdpoRewardKeys, or in
 * combineRewards, or all numbers that the task returns. [K][N]; NaN for a sample that lacks a reward.
 */
function rewardComponents(
  samples: readonly Sample[],
  { algorithm, reward: configured }: Settings,
): { values: number[][]; weights: number[] } {
  const extras = samples.map(({ reward }) => reward.extra ?? {});
  const given = [...new Set(extras.flatMap((extra) => Object.keys(extra).filter((name) => isNumber(extra[name]))))];
  if (given.length === 0) {
    throw new RangeError(
      'advEstimator "gdpo" normalises several rewards, but this task gives none in `extra`. Use grpo.',
    );
  }
  const { gdpoRewardKeys, gdpoRewardWeights } = algorithm;
  const absent = gdpoRewardKeys?.find((key) => !given.includes(key));
  if (absent !== undefined)
    throw new RangeError(`algorithm.gdpoRewardKeys names "${absent}", but the task gives ${given.join(', ')}.`);
  const own = samples.find(({ reward }) => reward.weights)?.reward.weights;
  const names = gdpoRewardKeys ?? (own ? Object.keys(own) : given);
  return {
    values: names.map((name) => extras.map((extra) => (isNumber(extra[name]) ? extra[name] : NaN))),
    weights: names.map((name, k) => gdpoRewardWeights?.[k] ?? configured.weights[name] ?? own?.[name] ?? 1),
  };
}

const isNumber = (value: number | string | undefined): value is number => typeof value === 'number';

/**
 * One reward per sampled turn: the task's `turns` if the task returns them (NaN = 0), otherwise 0. The rest of the
 * final reward is added to the last turn, and the KL of each token is subtracted in the token's own turn.
 */
function turnRewardsOf(samples: readonly Sample[], rewards: number[], penalties?: readonly Float64Array[]): number[][] {
  return samples.map(({ reward, trajectory: { mask } }, s) => {
    const turns = reward.turns ?? new Array<number>(turnCount(mask)).fill(0);
    if (turns.length === 0 || Number.isNaN(rewards[s])) return []; // excluded from every baseline
    const given = turns.map((r) => (Number.isNaN(r) ? 0 : r));
    const kl = penalties ? turnSums(penalties[s], mask, given.length) : given.map(() => 0);
    const rest = rewards[s] + sum(kl) - sum(given);
    return given.map((r, j) => (j === given.length - 1 ? r + rest : r) - kl[j]);
  });
}

/** [turns] sum of the tokens' values in each turn. Tokens of turns beyond the last are added to the last. */
function turnSums(values: Float64Array, sampled: ArrayLike<number>, turns: number): number[] {
  const sums = new Array<number>(turns).fill(0);
  turnIndices(sampled).forEach((turn, t) => {
    if (turn >= 0) sums[Math.min(turn, turns - 1)] += values[t];
  });
  return sums;
}

function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let i = 0; i < values.length; i++) total += values[i];
  return total;
}
