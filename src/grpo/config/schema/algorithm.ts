/** The published method: advantages, filters, KL in the reward, rollout correction. */

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

export const algorithm = part({
  name: known(
    DEFAULT_RECIPE,
    () => Object.keys(RECIPES),
    'Published method: sets loss, advantage, aggregation and clip together.',
  ),
  advEstimator: known(undefined, advantageNames, {
    why: 'Advantage; from algorithm.name.',
    verl: '=',
    trl: 'multi_objective_aggregation',
    note: 'TRL: grpo, or gdpo by normalize_then_sum',
  }),
  normAdvByStdInGrpo: flag(undefined, {
    why: "Divide by the group's std; false = Dr. GRPO. The same as scaleRewards group | none.",
    verl: '=',
  }),
  scaleRewards: choice(undefined, ['group', 'batch', 'none'], {
    why: 'Which std divides the advantage; from algorithm.name.',
    trl: 'scale_rewards',
    note: 'group or none: normAdvByStdInGrpo of verl',
  }),
  gdpoRewardKeys: optionalTexts({ why: "gdpo: which of the task's named rewards; absent = all of them.", verl: '=' }),
  gdpoRewardWeights: optionalNumbers({
    why: 'gdpo: weight of each, in the same order; absent = 1.',
    verl: '=',
    trl: 'reward_weights',
  }),
  raeDecay: number(0.95, SHARE, '', "rae: what a role's baseline keeps of itself at each sample of the role."),
  gamma: number(1, SHARE, '', { why: 'Discount per token or turn, for the estimators that have one.', verl: '=' }),
  maskTruncated: flag(undefined, {
    why: 'Do not train on samples cut at the length limit; from algorithm.name.',
    trl: 'mask_truncated_completions',
  }),
  filterGroups: v.optional(
    part({
      enable: flag(undefined, {
        why: 'Replace groups whose samples all score the same (DAPO); from algorithm.name.',
        verl: '=',
      }),
      metric: choice('acc', ['acc', 'score'], { why: 'What must differ within a group.', verl: '=' }),
      maxNumGenBatches: count(10, 'batches', {
        why: 'Give up filling the batch after so many; it then trains on what there is.',
        verl: '=',
      }),
    }),
    {},
  ),
  replayBufferSize: count(0, 'groups', {
    why: 'Groups of earlier steps kept, to take the place of groups whose samples all score the same (TRL, 64 there); 0 = off.',
    min: 0,
  }),
  lengthPenalty: v.optional(
    part({
      type: choice(
        'none',
        ['none', 'linear'],
        "linear: scaled by the group's mean reward, taken off each score (prime-rl).",
      ),
      numOutputTokensWeight: number(0.25, ANY, '', "linear: x sampled tokens / the group's most."),
      numInputTokensWeight: number(0.1, ANY, '', "linear: x prompt and tool tokens / the group's most."),
      numTurnsWeight: number(0.1, ANY, '', "linear: x turns / the group's most."),
    }),
    {},
  ),
  useKlInReward: flag(false, { why: 'KL as a reward penalty instead of a loss term.', verl: '=' }),
  klPenalty: choice('k1', [...KL_TYPES, 'kl', 'mse', 'low_var_kl'], { why: 'Its estimator.', verl: '=' }),
  klCtrl: v.optional(
    part({
      type: choice('fixed', ['fixed', 'adaptive'], { why: 'adaptive moves klCoef towards targetKl.', verl: '=' }),
      klCoef: number(0.001, ANY, '', { why: 'Weight of the KL in the reward.', verl: '=' }),
      horizon: count(10_000, 'samples', { why: 'adaptive: how slowly it moves.', verl: '=' }),
      targetKl: number(0.1, ANY, 'nats', { why: 'adaptive: where it moves to.', verl: '=' }),
    }),
    {},
  ),
  rolloutCorrection: v.optional(
    part({
      rolloutIs: choice(undefined, ['none', 'token', 'sequence'], {
        why: 'Importance weight of trainer against sampler.',
        verl: '=',
        trl: 'vllm_importance_sampling_mode',
      }),
      rolloutIsThreshold: optionalNumberOrText('', {
        why: 'Weights above are cut to it; "low_high", e.g. 0.5_5, drops those outside (IcePop). Absent = 2.',
        verl: '=',
        trl: 'vllm_importance_sampling_clip_max',
      }),
      rolloutIsBatchNormalize: flag(false, { why: 'Divide the weights by their mean.', verl: '=' }),
      rolloutRs: text(undefined, {
        why: 'Rejection: token_k1|k2|k3, seq_sum_k1|k2|k3, seq_mean_k1|k2|k3, seq_max_k2|k3, several joined by commas.',
        verl: '=',
      }),
      rolloutRsThreshold: optionalNumberOrText('', {
        why: 'Of rolloutRs: one for all or one each, joined by commas; for k1 "low_high" bounds on the ratio.',
        verl: '=',
      }),
      bypassMode: flag(undefined, {
        why:
          'true = ratios are against the sampler; false = log-probs are computed anew before the update (three policies). ' +
          "Absent = false where rolloutIs or rolloutRs is set. verl's false would cost a pass that finds the same bits here.",
        verl: '=',
      }),
      offPolicyMaskThreshold: number(undefined, ANY, 'nats a token', {
        why: 'Drop samples with a negative advantage that drifted further from the sampler (OPSM); absent = off.',
        trl: 'off_policy_mask_threshold',
      }),
    }),
    {},
  ),
});
