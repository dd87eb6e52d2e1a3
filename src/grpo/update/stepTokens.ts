/**
 * From the scored samples of a step to what the update needs of each token: final rewards (score, overlong penalty, KL),
 * masks, advantages, importance weights. All on the main thread, in sample order.
 */

import { computeAdvantages, type AdvantageInputs, type CustomAdvantage, ownAdvantage } from '../advantages/index.ts';
import type { TrainConfig } from '../config/types.ts';
import { klPenalty } from '../losses/kl.ts';
import { meanTrained, type Metrics } from '../metrics.ts';
import { rolloutCorrection } from '../correction/correct.ts';
import { correctionSettings } from '../correction/settings.ts';
import { maskTruncated, overlongPenalty } from '../advantages/shaping.ts';
import type { Sample, SampleTokens } from './batch.ts';

/** Inputs that some settings need beside the samples; log-probs are one array a sample, as long as its response. */
export interface StepExtras {
  /** Of the frozen reference: for KL terms. */
  refLogProbs?: ArrayLike<number>[] | undefined;
  /** Of the trainer before its first update, where rollout correction does not bypass it; else the sampler's are the old ones. */
  oldLogProbs?: ArrayLike<number>[] | undefined;
  /** remax: [N] reward of the greedy answer to the sample's prompt. */
  baselines?: ArrayLike<number> | undefined;
  /** KL coefficient now, when klCtrl is adaptive; else klCtrl.klCoef. */
  klCoef?: number | undefined;
  /** A user's own estimator, in place of the configured one. */
  advantage?: CustomAdvantage | undefined;
}

export interface StepTokens extends SampleTokens {
  /** [N] what the advantages were computed from. */
  rewards: number[];
  /** One array a sample, for `lossWeights`; absent without importance weights. */
  isWeights?: Float64Array[];
  metrics: Metrics;
}

type Settings = Pick<TrainConfig, 'actor' | 'algorithm' | 'data'>;

/** Rewards, masks, advantages and importance weights of a step; writes each sample's mean advantage on it. */
export function stepTokens(config: Settings, samples: readonly Sample[], extras: StepExtras = {}): StepTokens {
  const { actor, algorithm, data } = config;
  const rolloutLogp = samples.map(({ trajectory }) => trajectory.logProbs);
  const sampled = samples.map(({ trajectory }) => trajectory.mask);
  const reasons = samples.map(({ trajectory }) => trajectory.stopReason);
  const kept = algorithm.maskTruncated ? maskTruncated(sampled, reasons) : sampled;
  const { masks, isWeights, metrics } = correct(config, extras, rolloutLogp, rewarded(kept, samples));
  const oldLogProbs = extras.oldLogProbs ?? rolloutLogp;
  const kl = algorithm.useKlInReward
    ? klInReward({ ...algorithm, klClamp: actor.klClamp }, extras, oldLogProbs, sampled)
    : undefined;
  const { len: bufferLen = 0, penaltyFactor } = algorithm.overlongBuffer;
  const rewards = samples.map(({ reward, trajectory }, s) => {
    const shape = { maxResponseLength: data.maxResponseLength, bufferLen, penaltyFactor };
    return reward.score + overlongPenalty(trajectory.responseIds.length, shape) - (kl?.penalties[s] ?? 0);
  });
  const inputs: AdvantageInputs = {
    rewards,
    groups: samples.map(({ group }) => group),
    masks,
    ...(algorithm.advEstimator === 'gdpo' ? { components: rewardComponents(samples, algorithm.gdpoRewardKeys) } : {}),
    ...(algorithm.advEstimator === 'turn_loo' ? { turnRewards: turnRewardsOf(samples, rewards, masks) } : {}),
    ...(extras.baselines ? { baselines: extras.baselines } : {}),
  };
  const { scaleRewards, gamma, gdpoRewardWeights: rewardWeights } = algorithm;
  const options = { scaleRewards, gamma, ...(rewardWeights && { rewardWeights }) };
  const own = extras.advantage ?? ownAdvantage(algorithm.advEstimator);
  const advantages = own ? own(inputs, samples) : computeAdvantages(algorithm.advEstimator, inputs, options);
  samples.forEach((sample, s) => (sample.advantage = meanTrained(advantages[s], masks[s])));
  return {
    masks,
    oldLogProbs,
    advantages,
    rewards,
    ...(isWeights ? { isWeights } : {}),
    ...(extras.refLogProbs ? { refLogProbs: extras.refLogProbs } : {}),
    metrics: { ...metrics, ...kl?.metrics, ...keptMass(samples), ...missingRewards(samples) },
  };
}

/** Masks with those of samples without a reward set to 0: no token count and no denominator knows them. */
function rewarded(masks: ArrayLike<number>[], samples: readonly Sample[]): ArrayLike<number>[] {
  return masks.map((mask, s) => (Number.isNaN(samples[s].reward.score) ? new Uint8Array(mask.length) : mask));
}

function missingRewards(samples: readonly Sample[]): Metrics {
  const missing = samples.filter(({ reward }) => Number.isNaN(reward.score)).length;
  if (missing === 0) return {};
  if (missing < samples.length) return { 'training/missing_reward_share': missing / samples.length };
  throw new RangeError(
    `None of the step's ${missing} samples has a reward: all scores are NaN. Look at the task's reward.`,
  );
}

/**
 * With top-k, top-p or min-p the sampler's true log-prob is logProbs - logMass, and the trainer's is taken
 * off the same recorded mass. In a ratio the two cancel, so both are kept over the whole vocabulary and nothing is
 * subtracted; a ratio that forgot one of them would average `training/kept_mass_mean`.
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

/** verl's apply_kl_penalty: coefficient x the sum over a sample's tokens; the metric is the mean over samples of their means. */
function klInReward(
  algorithm: Settings['algorithm'] & Pick<Settings['actor'], 'klClamp'>,
  extras: StepExtras,
  oldLogp: ArrayLike<number>[],
  masks: ArrayLike<number>[],
): { penalties: number[]; metrics: Metrics } {
  const ref = extras.refLogProbs;
  if (!ref) throw new RangeError('algorithm.useKlInReward needs the reference log-probs of the samples.');
  const coef = extras.klCoef ?? algorithm.klCtrl.klCoef;
  const sums = masks.map((mask, s) => {
    let [sum, count] = [0, 0];
    for (let t = 0; t < mask.length; t++) {
      if (mask[t] === 0) continue;
      const options = { oldLogp: oldLogp[s][t], valueClamp: algorithm.klClamp ?? Infinity };
      sum += klPenalty(algorithm.klPenalty, oldLogp[s][t], ref[s][t], options).value;
      count++;
    }
    return { sum, mean: count > 0 ? sum / count : 0 };
  });
  const current = sums.reduce((total, { mean }) => total + mean, 0) / Math.max(sums.length, 1);
  return {
    penalties: sums.map(({ sum }) => coef * sum),
    metrics: { 'actor/reward_kl_penalty': current, 'actor/reward_kl_penalty_coeff': coef },
  };
}

/** [K][N]: named numbers of the rewards, all of them unless `keys` says which; a sample that lacks one has NaN there. */
function rewardComponents(samples: readonly Sample[], keys?: readonly string[]): number[][] {
  const given = [...new Set(samples.flatMap(({ reward }) => Object.keys(reward.extra ?? {})))];
  if (given.length === 0) {
    throw new RangeError(
      'advEstimator "gdpo" normalises several rewards, but this task gives none in `extra`; use grpo.',
    );
  }
  const absent = keys?.find((key) => !given.includes(key));
  if (absent !== undefined)
    throw new RangeError(`algorithm.gdpoRewardKeys names "${absent}", but the task gives ${given.join(', ')}.`);
  return (keys ?? given).map((name) => samples.map(({ reward }) => reward.extra?.[name] ?? NaN));
}

/**
 * One reward a trained turn (run of 1s in the mask): the task's `turns` where it gives them, else 0; whatever the final
 * reward has beyond their sum goes to the last turn.
 */
function turnRewardsOf(samples: readonly Sample[], rewards: number[], masks: ArrayLike<number>[]): number[][] {
  return samples.map(({ reward }, s) => {
    const runs = Array.from(masks[s]).filter((m, t) => m !== 0 && (t === 0 || masks[s][t - 1] === 0)).length;
    const given = reward.turns ?? new Array<number>(runs).fill(0);
    if (given.length === 0 || Number.isNaN(rewards[s])) return []; // no part of anybody's baseline
    const rest = rewards[s] - given.reduce((a, b) => a + b, 0);
    return given.map((r, j) => (j === given.length - 1 ? r + rest : r));
  });
}
