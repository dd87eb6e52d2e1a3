/** `actor` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface ActorInput {
  /** Prompts an update; trainBatchSize / this = updates a step. Allowed: integer >= 1 (prompts). Default: 8. */
  ppoMiniBatchSize?: number | undefined;
  /** Passes over a step's samples. Allowed: integer >= 1 (passes). Default: 1. */
  ppoEpochs?: number | undefined;
  /** Sequences a micro-batch; absent = cut by ppoMaxTokenLenPerGpu. Memory only. Allowed: integer >= 1 (sequences). */
  ppoMicroBatchSizePerGpu?: number | undefined;
  /** Tokens a micro-batch at most. Memory and speed only, never the gradient. Allowed: integer >= 1 (tokens). Default: 4096. */
  ppoMaxTokenLenPerGpu?: number | undefined;
  /** How token losses become one number; from algorithm.name. Allowed: token-mean | token-sum | seq-mean-token-sum | seq-mean-token-mean | seq-mean-token-sum-norm. */
  lossAggMode?:
    | 'token-mean'
    | 'token-sum'
    | 'seq-mean-token-sum'
    | 'seq-mean-token-mean'
    | 'seq-mean-token-sum-norm'
    | undefined;
  /** Sets clipRatioLow and clipRatioHigh together. Allowed: >= 0. */
  clipRatio?: number | undefined;
  /** Lower clip: ratio >= 1 - this; from algorithm.name. Allowed: >= 0. */
  clipRatioLow?: number | undefined;
  /** Upper clip: ratio <= 1 + this; from algorithm.name. Allowed: >= 0. */
  clipRatioHigh?: number | undefined;
  /** Dual clip constant, above 1; from algorithm.name. Allowed: >= 1. */
  clipRatioC?: number | undefined;
  policyLoss?: ActorPolicyLossInput | undefined;
  /** Weight of the entropy bonus; from algorithm.name (0). Allowed: any number. */
  entropyCoeff?: number | undefined;
  /** Adaptive bonus: the weight rises while entropy is at or below this, else falls and is not applied; absent = fixed. Allowed: >= 0 (nats a token). */
  entropyTarget?: number | undefined;
  /** Adaptive bonus: change of the weight an update. Allowed: >= 0. Default: 0.005. */
  entropyCoeffDelta?: number | undefined;
  /** Adaptive bonus: lower end of the weight. Allowed: >= 0. Default: 0. */
  entropyCoeffMin?: number | undefined;
  /** Adaptive bonus: upper end of the weight. Allowed: >= 0. Default: 1. */
  entropyCoeffMax?: number | undefined;
  /** Policy loss and entropy bonus on the tokens of highest entropy only (0.2 in arXiv:2506.01939); below 1 costs a forward pass an update. Allowed: 0.000001 to 1 (share of tokens). Default: 1. */
  topEntropyQuantile?: number | undefined;
  /** KL to the frozen reference in the loss; absent = when klLossCoef is above 0. Allowed: true | false. */
  useKlLoss?: boolean | undefined;
  /** Weight of that KL; 0 = off. 0.001 where only useKlLoss is set. Allowed: >= 0. */
  klLossCoef?: number | undefined;
  /** Its estimator; from algorithm.name (k3). Allowed: k1 | k2 | k3 | abs | k1+ | k3+ | r*k3 | kl | mse | low_var_kl. */
  klLossType?: 'k1' | 'k2' | 'k3' | 'abs' | 'k1+' | 'k3+' | 'r*k3' | 'kl' | 'mse' | 'low_var_kl' | undefined;
  /** Bound on k3's value. 10 = verl, where a policy far below the reference then gets no gradient back; absent = none. Allowed: >= 0 (nats). */
  klClamp?: number | undefined;
  /** Leave samples that cannot move the policy (groups of equal rewards) out of forward and backward; their gradient is exactly 0. Never with KL or entropy terms. actor/* metrics are then of the tokens that are left. Allowed: true | false. Default: true. */
  skipZeroAdvantages?: boolean | undefined;
  /** Largest global L2 norm of the gradient; 0 = no clipping. Allowed: >= 0. Default: 1. */
  gradClip?: number | undefined;
  /** Order of mini-batches anew in each epoch, by seed. Allowed: true | false. Default: true. */
  shuffle?: boolean | undefined;
  optim?: ActorOptimInput | undefined;
}

interface ActorPolicyLossInput {
  /** Policy loss; from algorithm.name. Allowed: vanilla | dppo_tv | dppo_kl | gspo | sapo | gpg | clip_cov | kl_cov | geo_mean | dro | cispo | reinforce | luspo | vespo. */
  lossMode?: string | undefined;
  /** SAPO: temperature of the gate where the advantage is positive. Allowed: >= 0. */
  tauPos?: number | undefined;
  /** SAPO: the same where it is negative. Allowed: >= 0. */
  tauNeg?: number | undefined;
  /** CISPO: upper weight itself; absent = 1 + clipRatioHigh, as verl reads its bound. Allowed: >= 0. */
  wMax?: number | undefined;
  /** clip_cov: how many tokens lose their gradient. Allowed: 0 to 1 (share of tokens). */
  clipCovRatio?: number | undefined;
  /** clip_cov: lower bound of the covariance picked from. Allowed: any number. */
  clipCovLb?: number | undefined;
  /** clip_cov: upper bound. Allowed: any number. */
  clipCovUb?: number | undefined;
  /** kl_cov: how many tokens get the KL penalty. Allowed: 0 to 1 (share of tokens). */
  klCovRatio?: number | undefined;
  /** kl_cov: weight of that penalty. Allowed: >= 0. */
  ppoKlCoef?: number | undefined;
  /** DRO: weight of the quadratic term. Allowed: >= 0. */
  droBeta?: number | undefined;
  /** VESPO, positive advantage. Allowed: >= 0. */
  vespoKPos?: number | undefined;
  /** VESPO, negative advantage. Allowed: >= 0. */
  vespoKNeg?: number | undefined;
  /** VESPO, positive advantage. Allowed: >= 0. */
  vespoLambdaPos?: number | undefined;
  /** VESPO, negative advantage. Allowed: >= 0. */
  vespoLambdaNeg?: number | undefined;
  [key: string]: unknown;
}

interface ActorOptimInput {
  /** SGD and SignSGD keep no moments. Muon is for the matrices of the layers, with AdamW for the rest. In any case of letters. Allowed: AdamW | SGD | SignSGD | Muon. Default: "AdamW". */
  optimizer?: string | undefined;
  /** Of SGD and Muon; absent = none for SGD, 0.95 for Muon. Allowed: 0 to 0.9999. */
  momentum?: number | undefined;
  /** Of SGD and Muon; absent = false for SGD, true for Muon. Allowed: true | false. */
  nesterov?: boolean | undefined;
  /** Muon: by what a matrix's shape changes its rate. match_rms_adamw = 0.2 sqrt(max(out, in)), for rates found with AdamW. Allowed: original | match_rms_adamw. Default: "match_rms_adamw". */
  adjustLrFn?: 'original' | 'match_rms_adamw' | undefined;
  /** Peak rate, for models of about a million parameters; real ones want 1e-6 (all) or 1e-5 (LoRA). Allowed: > 0. Default: 0.00025. */
  lr?: number | undefined;
  /** Decay of the two moments; 0.95 follows the fast changing gradients of RL. Allowed: two numbers in [0, 1). Default: [0.9,0.95]. */
  betas?: [number, number] | undefined;
  /** Added to the root of the second moment. Allowed: > 0. Default: 1e-8. */
  eps?: number | undefined;
  /** Of every trained value; decoupled, but for SGD. verl's 0.01 makes no difference over so few steps. Allowed: >= 0. Default: 0. */
  weightDecay?: number | undefined;
  /** cosine and linear fall to minLrRatio over totalTrainingSteps. Allowed: constant | cosine | linear. Default: "constant". */
  lrSchedulerType?: 'constant' | 'cosine' | 'linear' | undefined;
  /** Linear rise from 0 to lr. Allowed: integer >= 0, or -1 = 0 (updates). Default: 0. */
  lrWarmupSteps?: number | undefined;
  /** The same as a share; lrWarmupSteps above 0 wins. Allowed: 0 to 1 (share of all updates). Default: 0. */
  lrWarmupStepsRatio?: number | undefined;
  /** Where cosine and linear end. Allowed: 0 to 1 (share of lr). Default: 0. */
  minLrRatio?: number | undefined;
  /** Of cosine over the run; 0.5 falls once from lr to its end. Allowed: > 0 (periods). Default: 0.5. */
  numCycles?: number | undefined;
}
