/** The policy loss, its terms and the optimizer. */

import * as v from 'valibot';
import { LOSS_AGG_MODES } from '../../losses/aggregate.ts';
import { KL_TYPES } from '../../losses/kl.ts';
import { ADJUST_LR_FNS, OPTIMIZERS } from '../../../model/optimizer/spec.ts';
import { POLICY_LOSSES } from '../../losses/index.ts';
import { choice, count, countOrOff, flag, nameOf, number, known, pair, part, positive, ANY, SHARE } from '../keys.ts';

/** The keys of an optimizer that every kind of run has. */
export const optimizerKeys = {
  optimizer: nameOf(
    'AdamW',
    OPTIMIZERS,
    'SGD and SignSGD keep no moments. Muon is for the matrices of the layers, with AdamW for the rest. In any case of letters.',
  ),
  momentum: number(undefined, [0, 0.9999], '', 'Of SGD and Muon; absent = none for SGD, 0.95 for Muon.'),
  nesterov: flag(undefined, 'Of SGD and Muon; absent = false for SGD, true for Muon.'),
  adjustLrFn: choice(
    'match_rms_adamw',
    ADJUST_LR_FNS,
    "Muon: by what a matrix's shape changes its rate. match_rms_adamw = 0.2 sqrt(max(out, in)), for rates found with AdamW.",
  ),
};

const optim = part({
  ...optimizerKeys,
  lr: positive(
    2.5e-4,
    '',
    'Peak rate, for models of about a million parameters; real ones want 1e-6 (all) or 1e-5 (LoRA).',
  ),
  betas: pair([0.9, 0.95], [0, 1], 'Decay of the two moments; 0.95 follows the fast changing gradients of RL.'),
  eps: positive(1e-8, '', 'Added to the root of the second moment.'),
  weightDecay: number(
    0,
    ANY,
    '',
    "Of every trained value; decoupled, but for SGD. verl's 0.01 makes no difference over so few steps.",
  ),
  lrSchedulerType: choice(
    'constant',
    ['constant', 'cosine', 'linear'],
    'cosine and linear fall to minLrRatio over totalTrainingSteps.',
  ),
  lrWarmupSteps: countOrOff(0, 'updates', 'Linear rise from 0 to lr.'),
  lrWarmupStepsRatio: number(0, SHARE, 'share of all updates', 'The same as a share; lrWarmupSteps above 0 wins.'),
  minLrRatio: number(0, SHARE, 'share of lr', 'Where cosine and linear end.'),
  numCycles: positive(0.5, 'periods', 'Of cosine over the run; 0.5 falls once from lr to its end.'),
});

/**
 * The loss, and numbers of single losses (a registered one has its own, which resolve.ts checks): each is read by the loss it is named
 * for, whose file in `losses/` has its default.
 */
const policyLoss = v.looseObject({
  lossMode: known(undefined, () => Object.keys(POLICY_LOSSES), 'Policy loss; from algorithm.name.'),
  tauPos: number(undefined, ANY, '', 'SAPO: temperature of the gate where the advantage is positive.'),
  tauNeg: number(undefined, ANY, '', 'SAPO: the same where it is negative.'),
  wMax: number(undefined, ANY, '', 'CISPO: upper weight itself; absent = 1 + clipRatioHigh, as verl reads its bound.'),
  clipCovRatio: number(undefined, SHARE, 'share of tokens', 'clip_cov: how many tokens lose their gradient.'),
  clipCovLb: number(undefined, [-Infinity, Infinity], '', 'clip_cov: lower bound of the covariance picked from.'),
  clipCovUb: number(undefined, [-Infinity, Infinity], '', 'clip_cov: upper bound.'),
  klCovRatio: number(undefined, SHARE, 'share of tokens', 'kl_cov: how many tokens get the KL penalty.'),
  ppoKlCoef: number(undefined, ANY, '', 'kl_cov: weight of that penalty.'),
  droBeta: number(undefined, ANY, '', 'DRO: weight of the quadratic term.'),
  vespoKPos: number(undefined, ANY, '', 'VESPO, positive advantage.'),
  vespoKNeg: number(undefined, ANY, '', 'VESPO, negative advantage.'),
  vespoLambdaPos: number(undefined, ANY, '', 'VESPO, positive advantage.'),
  vespoLambdaNeg: number(undefined, ANY, '', 'VESPO, negative advantage.'),
});

export const actor = part({
  ppoMiniBatchSize: count(8, 'prompts', 'Prompts an update; trainBatchSize / this = updates a step.'),
  ppoEpochs: count(1, 'passes', "Passes over a step's samples."),
  ppoMicroBatchSizePerGpu: count(
    undefined,
    'sequences',
    'Sequences a micro-batch; absent = cut by ppoMaxTokenLenPerGpu. Memory only.',
  ),
  ppoMaxTokenLenPerGpu: count(
    4096,
    'tokens',
    'Tokens a micro-batch at most. Memory and speed only, never the gradient.',
  ),
  lossAggMode: choice(undefined, LOSS_AGG_MODES, 'How token losses become one number; from algorithm.name.'),
  clipRatio: number(undefined, ANY, '', 'Sets clipRatioLow and clipRatioHigh together.'),
  clipRatioLow: number(undefined, ANY, '', 'Lower clip: ratio >= 1 - this; from algorithm.name.'),
  clipRatioHigh: number(undefined, ANY, '', 'Upper clip: ratio <= 1 + this; from algorithm.name.'),
  clipRatioC: number(undefined, [1, Infinity], '', 'Dual clip constant, above 1; from algorithm.name.'),
  policyLoss: v.optional(policyLoss, {}),
  entropyCoeff: number(undefined, [-Infinity, Infinity], '', 'Weight of the entropy bonus; from algorithm.name (0).'),
  entropyTarget: number(
    undefined,
    ANY,
    'nats a token',
    'Adaptive bonus: the weight rises while entropy is at or below this, else falls and is not applied; absent = fixed.',
  ),
  entropyCoeffDelta: number(0.005, ANY, '', 'Adaptive bonus: change of the weight an update.'),
  entropyCoeffMin: number(0, ANY, '', 'Adaptive bonus: lower end of the weight.'),
  entropyCoeffMax: number(1, ANY, '', 'Adaptive bonus: upper end of the weight.'),
  topEntropyQuantile: number(
    1,
    [1e-6, 1],
    'share of tokens',
    'Policy loss and entropy bonus on the tokens of highest entropy only (0.2 in arXiv:2506.01939); below 1 costs a forward pass an update.',
  ),
  useKlLoss: flag(undefined, 'KL to the frozen reference in the loss; absent = when klLossCoef is above 0.'),
  klLossCoef: number(undefined, ANY, '', 'Weight of that KL; 0 = off. 0.001 where only useKlLoss is set.'),
  klLossType: choice(undefined, [...KL_TYPES, 'kl', 'mse', 'low_var_kl'], 'Its estimator; from algorithm.name (k3).'),
  klClamp: number(
    undefined,
    ANY,
    'nats',
    "Bound on k3's value. 10 = verl, where a policy far below the reference then gets no gradient back; absent = none.",
  ),
  skipZeroAdvantages: flag(
    true,
    'Leave samples that cannot move the policy (groups of equal rewards) out of forward and backward; their gradient is ' +
      'exactly 0. Never with KL or entropy terms. actor/* metrics are then of the tokens that are left.',
  ),
  gradClip: number(1, ANY, '', 'Largest global L2 norm of the gradient; 0 = no clipping.'),
  shuffle: flag(true, 'Order of mini-batches anew in each epoch, by seed.'),
  optim: v.optional(optim, {}),
});
