/** Config part `algorithm`: the published method, advantages, filters, KL in the reward, rollout correction. */

import * as v from 'valibot';
import { advantageNames } from '../../advantages/index.ts';
import { KL_TYPES } from '../../losses/kl.ts';
import { DEFAULT_RECIPE, RECIPES } from '../recipes.ts';
import {
  choice,
  count,
  flag,
  known,
  number,
  optionalNumberOrText,
  optionalNumbers,
  text,
  optionalTexts,
  part,
  ANY,
  SHARE,
} from '../keys.ts';

/** Keys of `algorithm`. */
export const algorithm = part({
  name: known(
    DEFAULT_RECIPE,
    () => Object.keys(RECIPES),
    'Published method. Sets loss, advantage, aggregation and clip range together.',
  ),
  advEstimator: known(undefined, advantageNames, {
    why: 'Advantage estimator. The default comes from algorithm.name.',
    verl: '=',
    trl: 'multi_objective_aggregation',
    note: 'TRL: grpo, or gdpo by normalize_then_sum',
  }),
  normAdvByStdInGrpo: flag(undefined, {
    why: "Divide advantages by the group's std; false = Dr. GRPO. Equals scaleRewards group | none.",
    verl: '=',
  }),
  scaleRewards: choice(undefined, ['group', 'batch', 'none'], {
    why: 'Samples whose standard deviation divides the advantage. Default: set by algorithm.name.',
    trl: 'scale_rewards',
    note: 'group or none: normAdvByStdInGrpo of verl',
  }),
  gdpoRewardKeys: optionalTexts({ why: "gdpo: the task's named rewards to use. Default: all of them.", verl: '=' }),
  gdpoRewardWeights: optionalNumbers({
    why: 'gdpo: weight of each reward, in the same order. Default: 1.',
    verl: '=',
    trl: 'reward_weights',
  }),
  raeDecay: number(
    0.95,
    SHARE,
    '',
    "rae: decay of a role's baseline (its running mean reward) at each sample of the role.",
  ),
  gamma: number(1, SHARE, '', { why: 'Discount per token or turn, for estimators with a discount.', verl: '=' }),
  maskTruncated: flag(undefined, {
    why: 'Do not train on samples that a limit of tokens, turns, calls or time ended. The default comes from algorithm.name.',
    trl: 'mask_truncated_completions',
  }),
  filterGroups: v.optional(
    part({
      enable: flag(undefined, {
        why: 'Replace groups whose samples all have the same value of metric (DAPO). The default comes from algorithm.name.',
        verl: '=',
      }),
      metric: choice('acc', ['acc', 'score'], {
        why: 'Value that must differ within a group. A group whose outcomes (acc) are all unknown needs different scores.',
        verl: '=',
      }),
      maxNumGenBatches: count(10, 'batches', {
        why: 'Maximum number of batches generated to fill one batch. After that many, the step trains on the groups that it has.',
        verl: '=',
      }),
    }),
    {},
  ),
  replayBufferSize: count(0, 'groups', {
    why: 'Stored groups of earlier steps, which replace groups whose samples all have the same reward (64 in TRL). 0 = off.',
    min: 0,
  }),
  lengthPenalty: v.optional(
    part({
      type: choice(
        'none',
        ['none', 'linear'],
        "linear: a penalty scaled by the group's mean reward is subtracted from each score (prime-rl).",
      ),
      numOutputTokensWeight: number(
        0.25,
        ANY,
        '',
        'linear: weight of the sampled tokens, as a share of the largest number in the group.',
      ),
      numInputTokensWeight: number(
        0.1,
        ANY,
        '',
        'linear: weight of the prompt and tool tokens, as a share of the largest number in the group.',
      ),
      numTurnsWeight: number(
        0.1,
        ANY,
        '',
        'linear: weight of the turns, as a share of the largest number in the group.',
      ),
    }),
    {},
  ),
  useKlInReward: flag(false, { why: 'KL as a reward penalty instead of a loss term.', verl: '=' }),
  klPenalty: choice('k1', [...KL_TYPES, 'kl', 'mse', 'low_var_kl'], {
    why: 'Estimator of the KL in the reward.',
    verl: '=',
  }),
  klCtrl: v.optional(
    part({
      type: choice('fixed', ['fixed', 'adaptive'], {
        why: 'adaptive changes klCoef so that the KL approaches targetKl.',
        verl: '=',
      }),
      klCoef: number(0.001, ANY, '', { why: 'Weight of the KL in the reward.', verl: '=' }),
      horizon: count(10_000, 'samples', {
        why: 'adaptive: samples over which klCoef adapts; more = slower.',
        verl: '=',
      }),
      targetKl: number(0.1, ANY, 'nats', { why: 'adaptive: target of the KL.', verl: '=' }),
    }),
    {},
  ),
  rolloutCorrection: v.optional(
    part({
      rolloutIs: choice(undefined, ['none', 'token', 'sequence'], {
        why: 'Importance weights of trainer against sampler.',
        verl: '=',
        trl: 'vllm_importance_sampling_mode',
      }),
      rolloutIsThreshold: optionalNumberOrText('', {
        why: 'Weights above this value are truncated to it. "low_high", e.g. 0.5_5, sets weights outside to 0 (IcePop). Default: 2.',
        verl: '=',
        trl: 'vllm_importance_sampling_clip_max',
      }),
      rolloutIsBatchNormalize: flag(false, { why: 'Divide the weights by their mean.', verl: '=' }),
      rolloutRs: text(undefined, {
        why: 'Rejection by token_k1|k2|k3, seq_sum_k1|k2|k3, seq_mean_k1|k2|k3 or seq_max_k2|k3; several are joined by commas.',
        verl: '=',
      }),
      rolloutRsThreshold: optionalNumberOrText('', {
        why: 'Threshold of rolloutRs: one for all, or one for each, joined by commas. k1 takes "low_high" bounds on the ratio.',
        verl: '=',
      }),
      bypassMode: flag(undefined, {
        why:
          'true = ratios are against the sampler; false = log-probs are recomputed before the update (three policies). ' +
          'Default: false if rolloutIs or rolloutRs is set, otherwise true, because a recomputation would return the same bits.',
        verl: '=',
      }),
      offPolicyMaskThreshold: number(undefined, ANY, 'nats per token', {
        why: 'Drop samples with a negative advantage that are further from the sampler than this (OPSM). Default: off.',
        trl: 'off_policy_mask_threshold',
      }),
    }),
    {},
  ),
});
