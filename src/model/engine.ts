/**
 * Interface through which a model is trained, like verl's engines. It has two implementations: `wgslEngine.ts`
 * (default, hand-written kernels) and `src/extensions/tfjs/engine.ts` (autodiff, used as an oracle).
 */

import type { PolicyLossText } from '../gpu/ops/policy_loss.ts';
import type { ModelConfig } from './config.ts';
import type { OptimizerName } from './optimizer/spec.ts';

/**
 * One micro-batch: sequences concatenated to rows, with a group's shared prompt once. Plain typed arrays, so it can be
 * sent to a worker.
 *
 * Example, one group: prompt P0 P1, sample a = A0 A1, sample b = B0 B1 B2 (B1 is tool output, not trained). A sample's
 * last token predicts no other token and no query sees it, so it has no row (A1 and B2 are targets only).
 *   row        0  1   2   3  4
 *   token      P0 P1  A0  B0 B1
 *   position   0  1   2   2  3
 *   ranges     [prefixStart, prefixEnd, ownStart, ownEnd) key rows; row 4: [0,2,3,5], row 1: [0,0,0,2]
 *   queryEnd   5  5   3   5  5            rows n..queryEnd[n] are the queries that can see key row n
 *   predicted  entries in sample order: A0 A1 | B0 B2; entry row 1 2 | 1 4
 *   headRows   1 2 4                      the distinct rows that predict something, ascending
 *   rowStart   0 2 3 4, rowEntries 0 2 | 1 | 3   entries of each head row (P1 predicts both A0 and B0)
 */
export interface PackedBatch {
  /** [N] */
  tokens: Uint32Array;
  /** [N] */
  positions: Uint32Array;
  /** [N, 4] */
  ranges: Uint32Array;
  /** [N] */
  queryEnd: Uint32Array;
  /** [R] */
  headRows: Uint32Array;
  /** [R + 1] entries of head row r are rowEntries[rowStart[r]] .. rowEntries[rowStart[r + 1] - 1] */
  rowStart: Uint32Array;
  /** [E] entry numbers, sorted by head row */
  rowEntries: Uint32Array;
  /** [E] head row of each entry, as index into headRows */
  entryRow: Uint32Array;
  /** [E] token that each entry predicts */
  targets: Uint32Array;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1] */
  seqStart: Uint32Array;
}

/**
 * Inputs of the policy loss in addition to the new log-probs; all [E], in entry order (sample by sample). Logs are
 * natural.
 */
export interface PolicyLossInputs {
  /**
   * Log-prob under the policy in the ratio's denominator (the sampler or the proximal policy), at the same temperature.
   */
  oldLogProbs: Float32Array;
  /** [E] advantage of each token. */
  advantages: Float32Array;
  /** Weight of the token in the mini-batch's scalar loss: aggregation x mask x importance weight. */
  weights: Float32Array;
  /** Weight of the token's KL and entropy terms: aggregation x mask. */
  klWeights: Float32Array;
  /**
   * Weight of the token's entropy term, if different from klWeights: 0 for tokens that topEntropyQuantile excludes.
   */
  entropyWeights?: Float32Array;
  /** Log-prob under the frozen reference. Undefined if the loss has no KL. */
  refLogProbs?: Float32Array;
  /** 1 = trained; sequence-level losses average over the trained tokens. Default: all are trained. */
  mask?: Float32Array;
  /** 1 = selected by clip-cov or kl-cov in the full mini-batch. Default: none selected. */
  selected?: Float32Array;
}

/**
 * A policy loss with all settings, as an engine runs it: its WGSL text, its parameters, and its KL and entropy terms.
 * `lossSpec()` of `src/grpo/losses` creates one.
 */
export interface PolicyLossSpec extends PolicyLossText {
  /** Weight of the KL term in the loss; 0 = off. */
  klLossCoef: number;
  /** Estimator of the KL loss: k1, k2, k3, or another one listed in docs/reference/config.md at actor.klLossType. */
  klLossType: string;
  /** Bound on |k3|; 10 = verl. Default: no bound. */
  klClamp?: number;
  /** Weight of the entropy bonus; 0 = off. */
  entropyCoeff: number;
}

/** Loss that `forwardBackward` minimises. It is a sum over the E entries of a batch. */
export type TrainLoss =
  /** -sum_e weights[e] * logp[e]: supervised training. */
  | { kind: 'nll'; weights: Float32Array }
  /** A policy loss that runs on the device, without a read-back between forward and backward. */
  | { kind: 'policy'; spec: PolicyLossSpec; inputs: PolicyLossInputs }
  /** Given values of d loss / d logp[e], for custom losses and tests. */
  | { kind: 'coefficients'; dLogProbs: Float32Array; dEntropy?: Float32Array };

/** Outputs of a forward pass for each entry; all [E], in entry order. */
export interface TokenOutputs {
  /** log p(target | context) at the given temperature, natural log. */
  logProbs: Float32Array;
  /** Entropy in nats of the full distribution at the row that predicts the target. */
  entropy: Float32Array;
}

/**
 * Place of each entry's target in the cumulative distribution of its row. All [E], with probability masses summed as in
 * kernels/sample.wgsl. A random number u in [0, 1) samples the target if below <= u * total < through.
 */
export interface DrawBounds {
  /** Same as TokenOutputs.logProbs. */
  logProbs: Float32Array;
  /** Probability mass of the tokens before the target. */
  below: Float32Array;
  /** Probability mass of the tokens up to and including the target. */
  through: Float32Array;
  /** Probability mass of all tokens: 1 up to rounding. */
  total: Float32Array;
}

/** Numbers of one optimizer step. Betas and eps are AdamW's; Muon uses them for parameters other than matrices. */
export interface OptimizerOptions {
  /** Name of the optimizer that the caller expects. A step throws if the engine has another one. Default: no check. */
  optimizer?: OptimizerName;
  /** Learning rate of this step. */
  lr: number;
  /** Decay of the gradient's running mean. The momentum of SGD and Muon is an option of the engine instead. */
  beta1: number;
  /** Decay of the running mean of the squared gradient. */
  beta2: number;
  /** Constant added to the root of the running mean of the squared gradient. */
  eps: number;
  /** Weight decay, decoupled from the gradient, except for SGD, where it is added to the gradient as in PyTorch. */
  weightDecay: number;
  /** Gradients are scaled so that their global L2 norm is at most this; 0 = no clipping. */
  gradClip: number;
}

/** Result of an optimizer step. */
export interface OptimizerStepResult {
  /** Global L2 norm of the gradient before clipping. */
  gradNorm: number;
  /** True if the norm was not finite, so that no weight was updated. */
  skipped: boolean;
}

/** Tensors by Hugging Face name: weights, or the optimizer's state. */
export type TensorMap = Map<string, { shape: number[]; data: Float32Array }>;

/** Trains a model: log-probs, gradients, optimizer. Calls are made one after another; each waits for the device. */
export interface ModelEngine {
  /** Implementation of the engine. */
  readonly name: 'wgsl' | 'tfjs';
  /** The model's sizes. */
  readonly config: ModelConfig;
  /** Returns log-probs and entropies of a batch; changes no state. */
  logProbs(batch: PackedBatch, options: { temperature: number }): Promise<TokenOutputs>;
  /**
   * Returns log-probs of a batch, and the range of random numbers that would sample each target. Undefined if the
   * engine cannot compute them.
   */
  drawBounds?(batch: PackedBatch, options: { temperature: number }): Promise<DrawBounds>;
  /** Runs forward, loss and backward. Parameter gradients accumulate until the optimizer step. */
  forwardBackward(batch: PackedBatch, loss: TrainLoss, options: { temperature: number }): Promise<TokenOutputs>;
  /**
   * Clips the gradient, updates the weights in place, zeroes the gradients. A rollout that shares the buffers reads the
   * new weights in its next pass. Its KV cache holds values from the old weights until
   * `CheckpointEngine.updateWeights`.
   */
  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult>;
  /** Zeroes the gradients of an update that failed before its optimizer step, like PyTorch's zero_grad. */
  zeroGrad(): Promise<void>;
  /** Returns the current weights by Hugging Face name, for tests and checkpoints. */
  exportWeights(): Promise<TensorMap>;
  /** Replaces weights by Hugging Face name; shapes must fit. */
  importWeights(tensors: TensorMap): Promise<void>;
  /**
   * Returns the optimizer state, with which a run can resume: the scalar `step`, and per weight `<name>.exp_avg` and
   * `.exp_avg_sq` (AdamW) or `.momentum_buffer` (SGD, Muon). Optimizers other than AdamW add a tensor
   * `optimizer.<name>`, which names the optimizer.
   */
  exportOptimizer(): Promise<TensorMap>;
  /** Restores the optimizer state. Throws InputError for the state of another optimizer. */
  importOptimizer(tensors: TensorMap): Promise<void>;
  /** Returns the gradients by Hugging Face name, before clipping, for tests. */
  exportGradients(): Promise<TensorMap>;
  /** Frees all buffers. No method can be called afterwards. */
  destroy(): void;
}
