/** Plain data that a Learner takes and returns. */

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
  /** From `createLocalEngine` or `createRemoteEngine`, with the sizes of `config`. */
  engine: TrainerEngine;
  /** Config that the engine was created with (`engineSizes(config)`). Supplies sizes, seed, and the default of every option below. */
  config: TrainConfig;
}

/** Context that `sample` continues: a text, encoded without a template; messages, by the chat template; or token ids. */
export type Prompt = string | Message[] | ArrayLike<number>;

/** Sampling options. Defaults are the config's (`rollout`, `data.maxResponseLength`). Names are vLLM's. */
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
  /** 0 = greedy; the log-probabilities are then computed at temperature 1. */
  temperature?: number | undefined;
  /** Maximum number of tokens to sample, up to `data.maxResponseLength`. */
  maxTokens?: number | undefined;
  /** Seed of the random keys. Default: the config's. If given without `step`, a repeated call samples the same. */
  seed?: number | undefined;
  /**
   * Part of the random keys. Equal seed, step, prompt number and sample number sample equal tokens. Default: the number of this call, from
   * 1.
   */
  step?: number | undefined;
  /** Tools whose schemas the chat template writes into prompts of messages. Calls in the reply stay text. */
  tools?: Tool[] | undefined;
}

/** A token sequence, T tokens. Arrays may be typed or plain. */
export interface Row {
  /** [T] prompt and response. */
  tokens: ArrayLike<number>;
  /** [T] 1 = the token is trained or scored, 0 = not. Must be 0 at the first token, which has no context. */
  mask: ArrayLike<number>;
  /**
   * Number of leading tokens that adjacent rows of the same `group` share, which then need one forward pass. Default: all before the first
   * 1 of the mask.
   */
  promptLength?: number | undefined;
  /** Number of the row's prompt. Adjacent rows with different numbers share nothing. */
  group?: number | undefined;
}

/** A row for `forwardBackward`. Values at tokens with mask 0 are ignored. */
export interface TrainRow extends Row {
  /** [T], or one number for all tokens. Default for cross_entropy and functions: 1. Required otherwise. */
  advantages?: ArrayLike<number> | number | undefined;
  /**
   * [T] natural log-probs under the policy that sampled, at the temperature of the call. Default for cross_entropy and functions: 0.
   * Required otherwise.
   */
  logProbs?: ArrayLike<number> | undefined;
  /** [T] log-probs under the reference, from `logProbs(rows, { reference: true })`. Required if klLossCoef is above 0. */
  refLogProbs?: ArrayLike<number> | undefined;
}

/** One sample. Add `advantages` to pass it to `forwardBackward`. */
export interface SampledRow extends Row {
  /** [T] */
  tokens: Uint32Array;
  /** [T] 1 = sampled, 0 = prompt. */
  mask: Uint8Array;
  /** [T] natural log-prob of each sampled token, over the full vocabulary at the sampling temperature; 0 on the prompt. */
  logProbs: Float32Array;
  /** Sampled text, without special tokens and, by default, without the stop string. */
  text: string;
  /** 'stop' = an end token; 'stop_string' = one of `stop`; 'length' = `maxTokens`. */
  stopReason: Generation['stopReason'];
  promptLength: number;
  /** Number of the row's prompt in the call. */
  group: number;
}

/** [rows][T] values of each row's tokens; 0 where the mask is 0. */
export interface TokenValues {
  /** Natural log-probs. */
  logProbs: Float32Array[];
  /** Entropy in nats of the complete distribution at each token. */
  entropies: Float32Array[];
}

/** Settings of a loss, its terms and its normalisation. Defaults are the named method's, otherwise the config's (`actor`). */
export interface LossOptions extends Pick<ActorInput, 'policyLoss' | Flagged<typeof actor.entries, 'ofLoss'>> {
  /** Temperature of the samples. Default: `rollout.temperature`, or 1 for cross_entropy. */
  temperature?: number | undefined;
  /**
   * Number of rows of the complete update, the divisor of seq-mean-*. Default: the rows of this call. Set it if an update takes several
   * calls.
   */
  globalBatchSize?: number | undefined;
  /** Number of trained tokens of the complete update, the divisor of token-mean. Default: the tokens of this call. */
  batchNumTokens?: number | undefined;
  /** Divisor of seq-mean-token-sum-norm. Default: `data.maxResponseLength`. */
  maxResponseLength?: number | undefined;
}

export interface ForwardBackwardResult extends TokenValues {
  /** Value of the differentiated loss, including KL and entropy terms. NaN for a function that returns no `loss`. */
  loss: number;
  /** verl's names: actor/pg_loss, actor/ppo_kl, actor/entropy, ... If rows have log-probs, also training/rollout_probs_diff_*. */
  metrics: Metrics;
}

/** Settings of an optimizer step. Defaults are the config's (`actor.optim`, `actor.gradClip`). */
export interface OptimStepOptions {
  /** Learning rate. Default: the config's, by its schedule. */
  lr?: number | undefined;
  /** AdamW's decay rates. */
  betas?: [number, number] | undefined;
  /** AdamW's epsilon, added to the root of the squared mean. */
  eps?: number | undefined;
  /** Same as OptimizerOptions.weightDecay. */
  weightDecay?: number | undefined;
  /** Largest global L2 norm of the gradient; 0 = no clipping. */
  gradClip?: number | undefined;
}

/** Result of an optimizer step. */
export interface OptimStepResult {
  /** Global L2 norm before clipping. */
  gradNorm: number;
  /** The learning rate that was used. */
  lr: number;
  /** True if the gradient norm was not finite. The weights are then unchanged and the gradient is dropped. */
  skipped: boolean;
  /** Number of optimizer steps so far, which is also the weight version. */
  updates: number;
}
