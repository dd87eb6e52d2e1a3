/**
 * The one interface through which a model is trained, after verl's engines. Two implementations:
 * `wgslEngine.ts` (default, hand-written kernels) and `src/extensions/tfjs/engine.ts` (autodiff, the oracle).
 */

import type { PolicyLossText } from '../gpu/ops/policy_loss.ts';
import type { ModelConfig } from './config.ts';
import type { OptimizerName } from './optimizer/spec.ts';

/**
 * Sequences laid end to end, a group's shared prompt once. Plain typed arrays, so it can cross a thread.
 *
 * Example, one group: prompt P0 P1, sample a = A0 A1, sample b = B0 B1 B2 (B1 is tool output, not trained). A sample's
 * last token predicts nothing and nothing sees it, so it has no row (A1 and B2 are targets only).
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
  /** [R + 1] into rowEntries */
  rowStart: Uint32Array;
  /** [E] entry numbers, grouped by head row */
  rowEntries: Uint32Array;
  /** [E] index into headRows of each entry */
  entryRow: Uint32Array;
  /** [E] the token each entry predicts */
  targets: Uint32Array;
  /** [S + 1] entries of sample s are seqStart[s] .. seqStart[s + 1] */
  seqStart: Uint32Array;
}

/** Inputs of the policy loss beside the new log-probs; all [E], entry order (sample by sample). Logs are natural. */
export interface PolicyLossInputs {
  /** log-prob under the policy that sampled (or the proximal policy), same temperature. */
  oldLogProbs: Float32Array;
  /** [E] advantage of each token. */
  advantages: Float32Array;
  /** Weight of the token in the mini-batch's scalar loss: aggregation x mask x importance weight. */
  weights: Float32Array;
  /** Weight of its KL and entropy terms: aggregation x mask. */
  klWeights: Float32Array;
  /** Weight of its entropy term where it is another: 0 outside the tokens of topEntropyQuantile. */
  entropyWeights?: Float32Array;
  /** log-prob under the frozen reference; absent when no KL is in the loss. */
  refLogProbs?: Float32Array;
  /** 1 = trained; what sequence-level losses average over. Absent = all. */
  mask?: Float32Array;
  /** 1 = picked by clip-cov or kl-cov over the whole mini-batch. Absent = none. */
  selected?: Float32Array;
}

/** A policy loss ready to run: its text, its numbers, and the terms beside it. `lossSpec()` of `src/grpo/losses` makes one. */
export interface PolicyLossSpec extends PolicyLossText {
  /** Weight of the KL term in the loss; 0 = none. */
  klLossCoef: number;
  /** Estimator of the KL loss: k1, k2, k3 and what docs/reference/config.md lists at actor.klLossType. */
  klLossType: string;
  /** Bound on |k3|; absent = none, 10 = verl. */
  klClamp?: number;
  /** Weight of the entropy bonus; 0 = none. */
  entropyCoeff: number;
}

/** Loss that `forwardBackward` minimises, over the E entries of a batch. */
export type TrainLoss =
  /** -sum_e weights[e] * logp[e]: supervised training. */
  | { kind: 'nll'; weights: Float32Array }
  /** Fused on the device, no read-back between forward and backward. */
  | { kind: 'policy'; spec: PolicyLossSpec; inputs: PolicyLossInputs }
  /** d loss / d logp[e] given outright: used for a user's own loss and in tests. */
  | { kind: 'coefficients'; dLogProbs: Float32Array; dEntropy?: Float32Array };

/** All [E], in entry order. */
export interface TokenOutputs {
  /** log p(target | context) at the given temperature, natural log. */
  logProbs: Float32Array;
  /** Entropy in nats of the whole distribution at the predicting row. */
  entropy: Float32Array;
}

/**
 * Bounds of each entry's target among the draws of its row; all [E], masses as kernels/sample.wgsl sums them. A random number u
 * samples the target if below <= u * total < through.
 */
export interface DrawBounds {
  /** Same as TokenOutputs.logProbs. */
  logProbs: Float32Array;
  /** Mass of the tokens before the target. */
  below: Float32Array;
  /** Mass of the tokens up to the target, itself among them. */
  through: Float32Array;
  /** Mass of all: 1 but for rounding. */
  total: Float32Array;
}

/** Numbers of one optimizer step; betas and eps are AdamW's, which Muon takes for what is no matrix. */
export interface OptimizerOptions {
  /** Refused where the engine was made with another; absent = whichever it was made with. */
  optimizer?: OptimizerName;
  /** Learning rate of this step. */
  lr: number;
  /** Decay of the gradient's mean; momentum of SGD and Muon is the engine's own. */
  beta1: number;
  /** Decay of the squared gradient's mean. */
  beta2: number;
  /** Added to the root of that mean. */
  eps: number;
  /** Decoupled from the gradient, but for SGD, where it is added to it, as in PyTorch. */
  weightDecay: number;
  /** Gradients are scaled so that their global L2 norm is at most this; 0 = no clipping. */
  gradClip: number;
}

/** Result of an optimizer step. */
export interface OptimizerStepResult {
  /** Global L2 norm before clipping. */
  gradNorm: number;
  /** True when the norm was not finite and the update was left out. */
  skipped: boolean;
}

/** Everything in HF names: weights, and the optimizer's state when asked for. */
export type TensorMap = Map<string, { shape: number[]; data: Float32Array }>;

/** Trains a model: log-probs, gradients, optimizer. Calls are made one after another; each waits for the device. */
export interface ModelEngine {
  /** Which implementation it is. */
  readonly name: 'wgsl' | 'tfjs';
  /** The model's sizes. */
  readonly config: ModelConfig;
  /** Log-probs and entropies of a batch; changes nothing. */
  logProbs(batch: PackedBatch, options: { temperature: number }): Promise<TokenOutputs>;
  /** Log-probs of a batch, and which random numbers would have drawn its targets; absent if the engine cannot tell. */
  drawBounds?(batch: PackedBatch, options: { temperature: number }): Promise<DrawBounds>;
  /** Forward, loss, backward; parameter gradients accumulate until the optimizer step. */
  forwardBackward(batch: PackedBatch, loss: TrainLoss, options: { temperature: number }): Promise<TokenOutputs>;
  /**
   * Clips, updates the weights in place, zeroes the gradients. Rollout on shared buffers reads the new weights in
   * its next pass; what it has cached stays of the old ones until `CheckpointEngine.updateWeights`.
   */
  optimizerStep(options: OptimizerOptions): Promise<OptimizerStepResult>;
  /** Zeroes the gradients of an update that failed before its optimizer step; PyTorch's zero_grad. */
  zeroGrad(): Promise<void>;
  /** Current weights by HF name (tests, checkpoints). */
  exportWeights(): Promise<TensorMap>;
  /** Replaces weights by HF name; shapes must fit. */
  importWeights(tensors: TensorMap): Promise<void>;
  /**
   * For resuming: the scalar `step`, and per weight `<name>.exp_avg` and `.exp_avg_sq` (AdamW) or `.momentum_buffer` (SGD,
   * Muon); optimizers but AdamW add a mark `optimizer.<name>`.
   */
  exportOptimizer(): Promise<TensorMap>;
  /** Throws InputError for the state of another optimizer. */
  importOptimizer(tensors: TensorMap): Promise<void>;
  /** Gradients by HF name, before clipping (tests). */
  exportGradients(): Promise<TensorMap>;
  /** Frees its buffers; nothing may be called after it. */
  destroy(): void;
}
