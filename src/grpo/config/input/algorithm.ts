/** `algorithm` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface AlgorithmInput {
  /** Published method: sets loss, advantage, aggregation and clip together. Allowed: grpo | dr_grpo | dapo | gspo | cispo | sapo | gmpo | gpg | rloo | reinforce_plus_plus | reinforce_plus_plus_baseline | opo | remax | grpo_passk | gdpo | dppo_tv | dppo_kl | clip_cov | kl_cov | dro | luspo | vespo | reinforce | max_rl | rae | turn_loo. Default: "grpo". */
  name?: string | undefined;
  /** Advantage; from algorithm.name. Allowed: grpo | rloo | opo | reinforce_plus_plus | reinforce_plus_plus_baseline | remax | grpo_passk | gpg | gdpo | max_rl | rae | turn_loo. */
  advEstimator?: string | undefined;
  /** Divide by the group's std; false = Dr. GRPO. The same as scaleRewards group | none. Allowed: true | false. */
  normAdvByStdInGrpo?: boolean | undefined;
  /** Which std divides the advantage; from algorithm.name. Allowed: group | batch | none. */
  scaleRewards?: 'group' | 'batch' | 'none' | undefined;
  /** gdpo: which of the task's named rewards; absent = all of them. Allowed: list of texts. */
  gdpoRewardKeys?: string[] | undefined;
  /** gdpo: weight of each, in the same order; absent = 1. Allowed: list of numbers. */
  gdpoRewardWeights?: number[] | undefined;
  /** rae: what a role's baseline keeps of itself at each sample of the role. Allowed: 0 to 1. Default: 0.95. */
  raeDecay?: number | undefined;
  /** Discount per token or turn, for the estimators that have one. Allowed: 0 to 1. Default: 1. */
  gamma?: number | undefined;
  /** Do not train on samples cut at the length limit; from algorithm.name. Allowed: true | false. */
  maskTruncated?: boolean | undefined;
  filterGroups?: AlgorithmFilterGroupsInput | undefined;
  /** Groups of earlier steps kept, to take the place of groups whose samples all score the same (TRL, 64 there); 0 = off. Allowed: integer >= 0 (groups). Default: 0. */
  replayBufferSize?: number | undefined;
  lengthPenalty?: AlgorithmLengthPenaltyInput | undefined;
  /** KL as a reward penalty instead of a loss term. Allowed: true | false. Default: false. */
  useKlInReward?: boolean | undefined;
  /** Its estimator. Allowed: k1 | k2 | k3 | abs | k1+ | k3+ | r*k3 | kl | mse | low_var_kl. Default: "k1". */
  klPenalty?: 'k1' | 'k2' | 'k3' | 'abs' | 'k1+' | 'k3+' | 'r*k3' | 'kl' | 'mse' | 'low_var_kl' | undefined;
  klCtrl?: AlgorithmKlCtrlInput | undefined;
  rolloutCorrection?: AlgorithmRolloutCorrectionInput | undefined;
}

interface AlgorithmFilterGroupsInput {
  /** Replace groups whose samples all score the same (DAPO); from algorithm.name. Allowed: true | false. */
  enable?: boolean | undefined;
  /** What must differ within a group. Allowed: acc | score. Default: "acc". */
  metric?: 'acc' | 'score' | undefined;
  /** Give up filling the batch after so many; it then trains on what there is. Allowed: integer >= 1 (batches). Default: 10. */
  maxNumGenBatches?: number | undefined;
}

interface AlgorithmLengthPenaltyInput {
  /** linear: scaled by the group's mean reward, taken off each score (prime-rl). Allowed: none | linear. Default: "none". */
  type?: 'none' | 'linear' | undefined;
  /** linear: x sampled tokens / the group's most. Allowed: >= 0. Default: 0.25. */
  numOutputTokensWeight?: number | undefined;
  /** linear: x prompt and tool tokens / the group's most. Allowed: >= 0. Default: 0.1. */
  numInputTokensWeight?: number | undefined;
  /** linear: x turns / the group's most. Allowed: >= 0. Default: 0.1. */
  numTurnsWeight?: number | undefined;
}

interface AlgorithmKlCtrlInput {
  /** adaptive moves klCoef towards targetKl. Allowed: fixed | adaptive. Default: "fixed". */
  type?: 'fixed' | 'adaptive' | undefined;
  /** Weight of the KL in the reward. Allowed: >= 0. Default: 0.001. */
  klCoef?: number | undefined;
  /** adaptive: how slowly it moves. Allowed: integer >= 1 (samples). Default: 10000. */
  horizon?: number | undefined;
  /** adaptive: where it moves to. Allowed: >= 0 (nats). Default: 0.1. */
  targetKl?: number | undefined;
}

interface AlgorithmRolloutCorrectionInput {
  /** Importance weight of trainer against sampler. Allowed: none | token | sequence. */
  rolloutIs?: 'none' | 'token' | 'sequence' | undefined;
  /** Weights above are cut to it; "low_high", e.g. 0.5_5, drops those outside (IcePop). Absent = 2. Allowed: number or text. */
  rolloutIsThreshold?: number | string | undefined;
  /** Divide the weights by their mean. Allowed: true | false. Default: false. */
  rolloutIsBatchNormalize?: boolean | undefined;
  /** Rejection: token_k1|k2|k3, seq_sum_k1|k2|k3, seq_mean_k1|k2|k3, seq_max_k2|k3, several joined by commas. Allowed: text. */
  rolloutRs?: string | undefined;
  /** Of rolloutRs: one for all or one each, joined by commas; for k1 "low_high" bounds on the ratio. Allowed: number or text. */
  rolloutRsThreshold?: number | string | undefined;
  /** true = ratios are against the sampler; false = log-probs are computed anew before the update (three policies). Absent = false where rolloutIs or rolloutRs is set. verl's false would cost a pass that finds the same bits here. Allowed: true | false. */
  bypassMode?: boolean | undefined;
  /** Drop samples with a negative advantage that drifted further from the sampler (OPSM); absent = off. Allowed: >= 0 (nats a token). */
  offPolicyMaskThreshold?: number | undefined;
}
