/** The policy loss, its terms and the optimizer. */

import * as v from 'valibot';
import { LOSS_AGG_MODES } from '../../losses/aggregate.ts';
import { KL_TYPES } from '../../losses/kl.ts';
import { POLICY_LOSSES } from '../../losses/index.ts';
import {
  choice,
  count,
  countOrOff,
  flag,
  number,
  optionalChoice,
  optionalCount,
  optionalFlag,
  optionalNumber,
  pair,
  part,
  positive,
  ANY,
  SHARE,
} from '../keys.ts';

const optim = part({
  lr: positive(
    2.5e-4,
    '',
    'Peak rate, for models of about a million parameters; real ones want 1e-6 (all) or 1e-5 (LoRA).',
  ),
  betas: pair([0.9, 0.95], [0, 1], 'Decay of the two moments; 0.95 follows the fast changing gradients of RL.'),
  eps: positive(1e-8, '', 'Added to the root of the second moment.'),
  weightDecay: number(0, ANY, '', "Decoupled, matrices only. verl's 0.01 makes no difference over so few steps."),
  lrScheduler: choice('constant', ['constant', 'cosine'], 'cosine falls to minLrRatio over totalTrainingSteps.'),
  lrWarmupSteps: countOrOff(0, 'updates', 'Linear rise from 0 to lr.'),
  minLrRatio: number(0, SHARE, 'share of lr', 'Where cosine ends.'),
  numCycles: positive(0.5, 'periods', 'Of cosine over the run; 0.5 falls once from lr to its end.'),
});

/** Numbers of single losses; each is read by the loss it is named for, whose file in `losses/` has its default. */
const policyLoss = part({
  tauPos: optionalNumber(ANY, '', 'SAPO: temperature of the gate where the advantage is positive.'),
  tauNeg: optionalNumber(ANY, '', 'SAPO: the same where it is negative.'),
  wMax: optionalNumber(ANY, '', 'CISPO: upper weight itself; absent = 1 + clipRatioHigh, as verl reads its bound.'),
  clipCovRatio: optionalNumber(SHARE, 'share of tokens', 'clip_cov: how many tokens lose their gradient.'),
  clipCovLb: optionalNumber([-Infinity, Infinity], '', 'clip_cov: lower bound of the covariance picked from.'),
  clipCovUb: optionalNumber([-Infinity, Infinity], '', 'clip_cov: upper bound.'),
  klCovRatio: optionalNumber(SHARE, 'share of tokens', 'kl_cov: how many tokens get the KL penalty.'),
  ppoKlCoef: optionalNumber(ANY, '', 'kl_cov: weight of that penalty.'),
  droBeta: optionalNumber(ANY, '', 'DRO: weight of the quadratic term.'),
  vespoKPos: optionalNumber(ANY, '', 'VESPO, positive advantage.'),
  vespoKNeg: optionalNumber(ANY, '', 'VESPO, negative advantage.'),
  vespoLambdaPos: optionalNumber(ANY, '', 'VESPO, positive advantage.'),
  vespoLambdaNeg: optionalNumber(ANY, '', 'VESPO, negative advantage.'),
});

export const actor = part({
  ppoMiniBatchSize: count(8, 'prompts', 'Prompts an update; trainBatchSize / this = updates a step.'),
  ppoEpochs: count(1, 'passes', "Passes over a step's samples."),
  ppoMicroBatchSize: optionalCount('sequences', 'Sequences a micro-batch; absent = cut by maxTokenLen. Memory only.'),
  maxTokenLen: count(4096, 'tokens', 'Tokens a micro-batch at most. Memory and speed only, never the gradient.'),
  lossMode: optionalChoice(Object.keys(POLICY_LOSSES), 'Policy loss; from algorithm.name.'),
  lossAggMode: optionalChoice(LOSS_AGG_MODES, 'How token losses become one number; from algorithm.name.'),
  clipRatio: optionalNumber(ANY, '', 'Sets clipRatioLow and clipRatioHigh together.'),
  clipRatioLow: optionalNumber(ANY, '', 'Lower clip: ratio >= 1 - this; from algorithm.name.'),
  clipRatioHigh: optionalNumber(ANY, '', 'Upper clip: ratio <= 1 + this; from algorithm.name.'),
  clipRatioC: optionalNumber([1, Infinity], '', 'Dual clip constant, above 1; from algorithm.name.'),
  policyLoss: v.optional(policyLoss, {}),
  entropyCoeff: optionalNumber([-Infinity, Infinity], '', 'Weight of the entropy bonus; from algorithm.name (0).'),
  entropyTarget: optionalNumber(
    ANY,
    'nats a token',
    'Adaptive bonus: the weight rises while entropy is at or below this, else falls and is not applied; absent = fixed.',
  ),
  entropyCoeffDelta: number(0.005, ANY, '', 'Adaptive bonus: change of the weight a step.'),
  entropyCoeffMin: number(0, ANY, '', 'Adaptive bonus: lower end of the weight.'),
  entropyCoeffMax: number(1, ANY, '', 'Adaptive bonus: upper end of the weight.'),
  topEntropyQuantile: number(
    1,
    [1e-6, 1],
    'share of tokens',
    'Policy loss on the tokens of highest entropy only (0.2 in arXiv:2506.01939); below 1 costs a forward pass an update.',
  ),
  useKlLoss: optionalFlag('KL to the frozen reference in the loss; absent = when klLossCoef is above 0.'),
  klLossCoef: optionalNumber(ANY, '', 'Weight of that KL; 0 = off. 0.001 where only useKlLoss is set.'),
  klLossType: optionalChoice([...KL_TYPES, 'kl', 'mse', 'low_var_kl'], 'Its estimator; from algorithm.name (k3).'),
  klClamp: optionalNumber(
    ANY,
    'nats',
    "Bound on k3's value. 10 = verl, where a policy far below the reference then gets no gradient back; absent = none.",
  ),
  gradClip: number(1, ANY, '', 'Largest global L2 norm of the gradient; 0 = no clipping.'),
  shuffle: flag(true, 'Order of mini-batches anew in each epoch, by seed.'),
  optim: v.optional(optim, {}),
});
