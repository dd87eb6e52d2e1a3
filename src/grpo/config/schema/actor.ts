/** The policy loss, its terms and the optimizer. */

import * as v from 'valibot';
import { LOSS_AGG_MODES } from '../../losses/aggregate.ts';
import { KL_TYPES } from '../../losses/kl.ts';
import { ADJUST_LR_FNS, OPTIMIZERS } from '../../../model/optimizer/spec.ts';
import { POLICY_LOSSES } from '../../losses/index.ts';
import {
  choice,
  count,
  countOrOff,
  flag,
  nameOf,
  number,
  known,
  pair,
  part,
  positive,
  positiveOrAuto,
  ANY,
  SHARE,
} from '../keys.ts';

/** Optimizer keys that training and supervised runs share. */
export const optimizerKeys = {
  optimizer: nameOf('AdamW', OPTIMIZERS, {
    why: 'SGD and SignSGD have no moments. With Muon, AdamW updates all weights that are not matrices of the layers. Case is ignored.',
    verl: '=',
    trl: 'optim',
  }),
  momentum: number(undefined, [0, 0.9999], '', 'Momentum of SGD and Muon. Default: 0 for SGD, 0.95 for Muon.'),
  nesterov: flag(undefined, 'Nesterov momentum of SGD and Muon. Default: false for SGD, true for Muon.'),
  adjustLrFn: choice(
    'match_rms_adamw',
    ADJUST_LR_FNS,
    "Muon: factor of a matrix's learning rate by its shape. match_rms_adamw = 0.2 sqrt(max(out, in)), so that AdamW's rates can be reused.",
  ),
};

const optim = part({
  ...optimizerKeys,
  lr: positiveOrAuto('', {
    why: 'Peak learning rate. auto = by the number of parameters: 2.5e-4 up to 2.3 M, 1.5e-5 at 135 M, 1e-6 from 7 B; with LoRA ten times that, at most 1e-3.',
    verl: '=',
    trl: 'learning_rate',
    live: true,
  }),
  betas: pair([0.9, 0.95], [0, 1], {
    why: 'Decay of the two moments. 0.95 follows the fast changing gradients of RL.',
    verl: '=',
    trl: 'adam_beta1',
    note: 'TRL: adam_beta1, adam_beta2',
  }),
  eps: positive(1e-8, '', { why: 'Added to the root of the second moment.', trl: 'adam_epsilon' }),
  weightDecay: number(0, ANY, '', {
    why: "Decay of every trained value; decoupled, except for SGD. verl's 0.01 has no visible effect over so few steps.",
    verl: '=',
    trl: 'weight_decay',
  }),
  lrSchedulerType: choice('constant', ['constant', 'cosine', 'linear'], {
    why: 'Schedule of the learning rate. cosine and linear fall to minLrRatio over totalTrainingSteps.',
    verl: 'actor_rollout_ref.actor.optim.lr_scheduler_type',
    trl: 'lr_scheduler_type',
  }),
  lrWarmupSteps: countOrOff(0, 'steps', {
    why: 'Linear rise from 0 to lr. All updates of a step have one rate.',
    verl: '=',
    trl: 'warmup_steps',
    note: 'TRL counts updates',
  }),
  lrWarmupStepsRatio: number(0, SHARE, 'share of all steps', {
    why: 'Warm-up as a share of all steps. lrWarmupSteps above 0 wins.',
    verl: '=',
    trl: 'warmup_ratio',
  }),
  minLrRatio: number(0, SHARE, 'share of lr', { why: 'Share of lr at which cosine and linear end.', verl: '=' }),
  numCycles: positive(0.5, 'periods', {
    why: 'Periods of cosine over the run. 0.5 falls once from lr to its end.',
    verl: '=',
  }),
});

/**
 * The loss, and the parameters of the losses. A parameter is read by the loss that its description names; the loss's file in `losses/` has
 * the default. A registered loss has its own parameters, which resolve.ts checks.
 */
const policyLoss = v.looseObject({
  lossMode: known(undefined, () => Object.keys(POLICY_LOSSES), {
    why: 'Policy loss. The default comes from algorithm.name.',
    verl: 'actor_rollout_ref.actor.policy_loss.loss_mode',
    trl: 'loss_type',
    note: "TRL's loss_type is loss and aggregation; algorithm.name sets both",
  }),
  tauPos: number(undefined, ANY, '', {
    why: 'SAPO: temperature of the gate if the advantage is positive.',
    verl: 'actor_rollout_ref.actor.tau_pos',
    trl: 'sapo_temperature_pos',
  }),
  tauNeg: number(undefined, ANY, '', {
    why: 'SAPO: temperature of the gate if the advantage is negative.',
    verl: 'actor_rollout_ref.actor.tau_neg',
    trl: 'sapo_temperature_neg',
  }),
  wMax: number(undefined, ANY, '', 'CISPO: upper bound of the weight. Default: 1 + clipRatioHigh, as in verl.'),
  clipCovRatio: number(undefined, SHARE, 'share of tokens', {
    why: 'clip_cov: share of tokens that lose their gradient.',
    verl: '=',
  }),
  clipCovLb: number(undefined, [-Infinity, Infinity], '', {
    why: 'clip_cov: lower bound of the covariance of these tokens.',
    verl: '=',
  }),
  clipCovUb: number(undefined, [-Infinity, Infinity], '', {
    why: 'clip_cov: upper bound of the covariance of these tokens.',
    verl: '=',
  }),
  klCovRatio: number(undefined, SHARE, 'share of tokens', {
    why: 'kl_cov: share of tokens with the KL penalty.',
    verl: '=',
  }),
  ppoKlCoef: number(undefined, ANY, '', { why: 'kl_cov: weight of the KL penalty on the selected tokens.', verl: '=' }),
  droBeta: number(undefined, ANY, '', { why: 'DRO: weight of the quadratic term.', verl: '=' }),
  vespoKPos: number(undefined, ANY, '', { why: 'VESPO: k for positive advantages.', trl: 'vespo_k_pos' }),
  vespoKNeg: number(undefined, ANY, '', { why: 'VESPO: k for negative advantages.', trl: 'vespo_k_neg' }),
  vespoLambdaPos: number(undefined, ANY, '', {
    why: 'VESPO: lambda for positive advantages.',
    trl: 'vespo_lambda_pos',
  }),
  vespoLambdaNeg: number(undefined, ANY, '', {
    why: 'VESPO: lambda for negative advantages.',
    trl: 'vespo_lambda_neg',
  }),
});

export const actor = part({
  ppoMiniBatchSize: count(8, 'prompts', {
    why:
      'Prompts per update. Updates per step = trainBatchSize / ppoMiniBatchSize. If not written: the divisor of ' +
      'trainBatchSize that is nearest to 8.',
    verl: '=',
    trl: 'per_device_train_batch_size',
    note: 'prompts; TRL counts samples: x rollout.n',
  }),
  ppoEpochs: count(1, 'passes', { why: "Passes over a step's samples.", verl: '=', trl: 'num_iterations' }),
  ppoMicroBatchSizePerGpu: count(undefined, 'sequences', {
    why: 'Sequences per micro-batch. Default: limited by ppoMaxTokenLenPerGpu alone. Changes memory only.',
    verl: 'actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu',
  }),
  ppoMaxTokenLenPerGpu: count(4096, 'tokens', {
    why: 'Maximum number of tokens per micro-batch. Changes memory and speed, never the gradient. If not written: 4096, or more if one sequence can be longer.',
    verl: 'actor_rollout_ref.actor.ppo_max_token_len_per_gpu',
    trl: 'gradient_accumulation_steps',
    note: 'micro-batches are split by tokens',
  }),
  lossAggMode: choice(undefined, LOSS_AGG_MODES, {
    why: 'How token losses are reduced to one number. The default comes from algorithm.name.',
    verl: '=',
    ofLoss: true,
  }),
  clipRatio: number(undefined, ANY, '', {
    why: 'Sets clipRatioLow and clipRatioHigh together.',
    verl: '=',
    ofLoss: true,
  }),
  clipRatioLow: number(undefined, ANY, '', {
    why: 'Lower clip: ratio >= 1 - clipRatioLow. The default comes from algorithm.name.',
    verl: '=',
    trl: 'epsilon',
    live: true,
    ofLoss: true,
  }),
  clipRatioHigh: number(undefined, ANY, '', {
    why: 'Upper clip: ratio <= 1 + clipRatioHigh. The default comes from algorithm.name.',
    verl: '=',
    trl: 'epsilon_high',
    note: 'cispo: the bound of the weight is this number in TRL, and 1 + this number in verl and here; see wMax',
    live: true,
    ofLoss: true,
  }),
  clipRatioC: number(undefined, [1, Infinity], '', {
    why: 'Dual-clip constant, above 1. The default comes from algorithm.name.',
    verl: '=',
    trl: 'delta',
    note: 'dual clip',
    live: true,
    ofLoss: true,
  }),
  policyLoss: v.optional(policyLoss, {}),
  entropyCoeff: number(undefined, [-Infinity, Infinity], '', {
    why: 'Weight of the entropy bonus. Default: set by algorithm.name (0 for every built-in name).',
    verl: '=',
    trl: 'entropy_coef',
    live: true,
    ofLoss: true,
  }),
  entropyTarget: number(undefined, ANY, 'nats per token', {
    why: 'Adaptive bonus: the weight rises while entropy is at or below this target; otherwise it falls and is not applied. Default: a fixed weight.',
    trl: 'entropy_target',
  }),
  entropyCoeffDelta: number(0.005, ANY, '', {
    why: 'Adaptive bonus: change of the weight per update.',
    trl: 'entropy_coef_delta',
  }),
  entropyCoeffMin: number(0, ANY, '', { why: 'Adaptive bonus: lowest weight.', trl: 'entropy_coef_min' }),
  entropyCoeffMax: number(1, ANY, '', { why: 'Adaptive bonus: highest weight.', trl: 'entropy_coef_max' }),
  topEntropyQuantile: number(1, [1e-6, 1], 'share of tokens', {
    why: 'Share of tokens, those of highest entropy, that policy loss and entropy bonus use (0.2 in arXiv:2506.01939). Below 1 it costs a forward pass per update.',
    trl: 'top_entropy_quantile',
    ofLoss: true,
  }),
  useKlLoss: flag(undefined, {
    why: 'KL to the frozen reference in the loss. Default: true if klLossCoef is above 0.',
    verl: '=',
  }),
  klLossCoef: number(undefined, ANY, '', {
    why: 'Weight of the KL in the loss; 0 = off. Default with useKlLoss: 0.001.',
    verl: '=',
    trl: 'beta',
    live: true,
    ofLoss: true,
  }),
  klLossType: choice(undefined, [...KL_TYPES, 'kl', 'mse', 'low_var_kl'], {
    why: 'Estimator of the KL in the loss. Default: set by algorithm.name (k3 for every built-in name).',
    verl: '=',
    trl: 'use_bias_correction_kl',
    note: 'TRL: k3, or r*k3 by this switch',
    ofLoss: true,
  }),
  klClamp: number(undefined, ANY, 'nats', {
    why: "Bound on k3's value. With verl's 10, a policy far below the reference has no gradient from the KL. Default: no bound.",
    ofLoss: true,
  }),
  skipZeroAdvantages: flag(true, {
    why:
      'Skip forward and backward for samples whose gradient is exactly 0 (groups of equal rewards). ' +
      'Has no effect with KL or entropy terms. actor/* metrics then cover only the remaining tokens.',
    ofLoss: true,
  }),
  gradClip: number(1, ANY, '', {
    why: 'Largest global L2 norm of the gradient. 0 = no clipping.',
    verl: '=',
    trl: 'max_grad_norm',
    live: true,
  }),
  shuffle: flag(true, {
    why: 'Put the groups of a step into its mini-batches in another order in each epoch, by seed. verl orders samples.',
    verl: '=',
  }),
  optim: v.optional(optim, {}),
});
