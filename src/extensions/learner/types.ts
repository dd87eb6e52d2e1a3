/** Types of the values that a Learner's methods take and return. */

import type { Generation } from '../../rollout/types.ts';
import type { Message } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { ActorInput, RolloutInput } from '../../grpo/config/input.ts';
import type { Flagged } from '../../grpo/config/keys.ts';
import type { actor } from '../../grpo/config/schema/actor.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { TrainerEngine } from '../../grpo/types.ts';

/** Options of a Learner. */
export interface LearnerOptions {
  /** Engine from `createLocalEngine` or `createRemoteEngine`, created with the sizes of `config`. */
  engine: TrainerEngine;
  /**
   * Config with which the engine was created (by `engineSizes(config)`). It supplies sizes, seed and the default of every option of the
   * learner's methods.
   */
  config: TrainConfig;
}

/** A prompt: a text, which is encoded without chat template; messages, which the chat template renders; or token ids. */
export type Prompt = string | Message[] | ArrayLike<number>;

/** Options of `sample`, with vLLM's names. Defaults are the config's `rollout` and `data.maxResponseLength`. */
export interface SampleOptions extends Pick<
  RolloutInput,
  | 'topK'
  | 'topP'
  | 'minP'
  | 'repetitionPenalty'
  | 'presencePenalty'
  | 'frequencyPenalty'
  | 'minNewTokens'
  | 'stop'
  | 'includeStopStrInOutput'
> {
  /** Sampling temperature. 0 = greedy; the returned log-probs are then at temperature 1. */
  temperature?: number | undefined;
  /** Maximum number of tokens per completion, at most `data.maxResponseLength`. */
  maxTokens?: number | undefined;
  /**
   * Seed of the random numbers. Default: the config's. If `seed` is given without `step`, calls with the same seed sample the same tokens.
   */
  seed?: number | undefined;
  /**
   * Step number in the random keys. The same seed, step, prompt index and sample index sample the same tokens. Default: the number of this
   * `sample` call, counted from 1.
   */
  step?: number | undefined;
  /** Tools whose schemas the chat template writes into prompts that are messages. Tool calls in completions are not parsed. */
  tools?: Tool[] | undefined;
}

/** A sequence of T tokens. Its arrays can be typed arrays or plain ones. */
export interface Row {
  /** [T] token ids of prompt and response. */
  tokens: ArrayLike<number>;
  /** [T] 1 = the token is trained or scored, 0 = it is not. Must be 0 at the first token, which no earlier token predicts. */
  mask: ArrayLike<number>;
  /**
   * Number of leading tokens that form the prompt. Adjacent rows with the same `group` and the same prompt share one forward pass over it.
   * Default: all tokens before the first 1 of the mask.
   */
  promptLength?: number | undefined;
  /** Index of the row's prompt. Adjacent rows with different values do not share the forward pass of a prompt. */
  group?: number | undefined;
}

/** A row for `forwardBackward`. Values at tokens with mask 0 are ignored. */
export interface TrainRow extends Row {
  /**
   * [T] advantages, or one number for all tokens. Optional for cross_entropy and for a function as loss (default 1), required otherwise.
   */
  advantages?: ArrayLike<number> | number | undefined;
  /**
   * [T] natural log-probs under the policy that sampled the tokens, at the temperature of the `forwardBackward` call. Optional for
   * cross_entropy and for a function as loss (default 0), required otherwise.
   */
  logProbs?: ArrayLike<number> | undefined;
  /** [T] log-probs under the reference model, from `logProbs(rows, { reference: true })`. Required if klLossCoef is above 0. */
  refLogProbs?: ArrayLike<number> | undefined;
}

/** A sampled completion with its prompt. Add `advantages` to pass it to `forwardBackward`. */
export interface SampledRow extends Row {
  /** [T] */
  tokens: Uint32Array;
  /** [T] 1 = sampled token, 0 = prompt token. */
  mask: Uint8Array;
  /** [T] natural log-prob of each sampled token, over the full vocabulary at the sampling temperature; 0 at prompt tokens. */
  logProbs: Float32Array;
  /** Sampled text, without special tokens, and without the stop string unless includeStopStrInOutput is set. */
  text: string;
  /** Why the completion ended. 'stop' = an end token; 'stop_string' = one of the strings in `stop`; 'length' = `maxTokens` was reached. */
  stopReason: Generation['stopReason'];
  promptLength: number;
  /** Index of the row's prompt in the `sample` call. */
  group: number;
}

/** Values per token, as [rows][T]; 0 where the mask is 0. */
export interface TokenValues {
  /** Natural log-prob of each token. */
  logProbs: Float32Array[];
  /** Entropy, in nats, of the distribution over the full vocabulary at each token. */
  entropies: Float32Array[];
}

/**
 * Options of `forwardBackward`: settings of the loss, its KL and entropy terms and its normalisation. Defaults are those of the named
 * method, otherwise the config's `actor`.
 */
export interface LossOptions extends Pick<ActorInput, 'policyLoss' | Flagged<typeof actor.entries, 'ofLoss'>> {
  /** Temperature at which the rows were sampled. Default: `rollout.temperature`, or 1 for cross_entropy. */
  temperature?: number | undefined;
  /**
   * Number of rows of the complete update, by which the seq-mean-* aggregations divide. Default: the rows of this call. Set it if several
   * calls make up one update.
   */
  globalBatchSize?: number | undefined;
  /** Number of trained tokens of the complete update, by which token-mean divides. Default: the trained tokens of this call. */
  batchNumTokens?: number | undefined;
  /** Number by which seq-mean-token-sum-norm divides. Default: `data.maxResponseLength`. */
  maxResponseLength?: number | undefined;
}

export interface ForwardBackwardResult extends TokenValues {
  /**
   * Value of the loss whose gradient was accumulated, KL and entropy terms included. NaN if the loss is a function that returns no `loss`.
   */
  loss: number;
  /**
   * Metrics with verl's names: actor/pg_loss, actor/ppo_kl, actor/entropy, ... If rows have log-probs, also training/rollout_probs_diff_*.
   */
  metrics: Metrics;
}

/** Options of `optimStep`. Defaults are the config's `actor.optim` and `actor.gradClip`. */
export interface OptimStepOptions {
  /** Learning rate of this step. Default: the config's, with its schedule. */
  lr?: number | undefined;
  /** Decay rates of the two moments of AdamW. */
  betas?: [number, number] | undefined;
  /** Epsilon of AdamW, added to the square root of the second moment. */
  eps?: number | undefined;
  /** Same as OptimizerOptions.weightDecay. */
  weightDecay?: number | undefined;
  /** Maximum global L2 norm of the gradient, to which a larger gradient is scaled down; 0 = no clipping. */
  gradClip?: number | undefined;
}

/** Result of `optimStep`. */
export interface OptimStepResult {
  /** Global L2 norm of the gradient before clipping. */
  gradNorm: number;
  /** The learning rate that was used. */
  lr: number;
  /** True if the norm of the gradient was not finite. The weights are then unchanged, and the gradient is dropped. */
  skipped: boolean;
  /** Number of optimizer steps so far. It is also the weight version. */
  updates: number;
}
