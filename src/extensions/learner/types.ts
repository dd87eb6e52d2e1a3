/** Plain data in and out of a Learner. */

import type { Generation } from '../../rollout/types.ts';
import type { Message } from '../../tasks/task.ts';
import type { Tool } from '../../tasks/tool.ts';
import type { ActorInput, RolloutInput } from '../../grpo/config/input.ts';
import type { Flagged } from '../../grpo/config/keys.ts';
import type { actor } from '../../grpo/config/schema/actor.ts';
import type { TrainConfig } from '../../grpo/config/types.ts';
import type { Metrics } from '../../grpo/metrics.ts';
import type { TrainerEngine } from '../../grpo/types.ts';

/** What a learner is made of. */
export interface LearnerOptions {
  /** From `createLocalEngine` or `createRemoteEngine`, by the sizes of `config`. */
  engine: TrainerEngine;
  /** What the engine was made by (`engineSizes(config)`): sizes, seed, and the default of every option below. */
  config: TrainConfig;
}

/** What `sample` continues from: a text, encoded as it is; messages, by the chat template; or token ids. */
export type Prompt = string | Message[] | ArrayLike<number>;

/** How `sample` draws; what is left out is the config's (`rollout`, `data.maxResponseLength`). Names are vLLM's. */
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
  /** 0 = greedy (log-probs are then those of temperature 1). */
  temperature?: number | undefined;
  /** Tokens drawn at most; up to `data.maxResponseLength`. */
  maxTokens?: number | undefined;
  /** Seed of the random keys. Default: the config's. If given without `step`, a repeated call samples the same. */
  seed?: number | undefined;
  /** Part of the random keys: equal seed, step, prompt number and sample number draw equal tokens. Absent = the number of this call, from 1. */
  step?: number | undefined;
  /** Tools whose schemas the chat template writes into prompts of messages; their calls are text, as all that is drawn. */
  tools?: Tool[] | undefined;
}

/** A token sequence, T tokens. Arrays may be typed or plain. */
export interface Row {
  /** [T] prompt and response. */
  tokens: ArrayLike<number>;
  /** [T] 1 = the token is trained or scored, 0 = not; 0 at the first, which nothing predicts. */
  mask: ArrayLike<number>;
  /** Tokens that neighbours of the same `group` share, which then cost one forward pass. Absent = all before the first 1 of the mask. */
  promptLength?: number | undefined;
  /** Number of its prompt: neighbours with another one share nothing. */
  group?: number | undefined;
}

/** A row for `forwardBackward`. Values where the mask is 0 do not count. */
export interface TrainRow extends Row {
  /** [T], or one number for all. Absent only for cross_entropy and functions: 1. */
  advantages?: ArrayLike<number> | number | undefined;
  /** [T] natural log-probs under the policy that sampled, at the temperature of the call. Absent only for cross_entropy and functions: 0. */
  logProbs?: ArrayLike<number> | undefined;
  /** [T] of the reference, `logProbs(rows, { reference: true })`; needed where klLossCoef is above 0. */
  refLogProbs?: ArrayLike<number> | undefined;
}

/** One sample, as `forwardBackward` takes it once it has `advantages`. */
export interface SampledRow extends Row {
  /** [T] */
  tokens: Uint32Array;
  /** [T] 1 = drawn, 0 = prompt. */
  mask: Uint8Array;
  /** [T] natural log-prob of each drawn token, over the whole vocabulary at the sampling temperature; 0 on the prompt. */
  logProbs: Float32Array;
  /** What was drawn, without special tokens and, unless asked for, without the stop string. */
  text: string;
  /** 'stop' = an end token; 'stop_string' = one of `stop`; 'length' = `maxTokens`. */
  stopReason: Generation['stopReason'];
  promptLength: number;
  /** Number of its prompt in the call. */
  group: number;
}

/** [rows] values of each row's tokens, [T]; 0 where the mask is 0. */
export interface TokenValues {
  /** Natural log-probs. */
  logProbs: Float32Array[];
  /** Nats, of the whole distribution that the token was drawn from. */
  entropies: Float32Array[];
}

/** Numbers of a loss, its terms and its normalisation. What is left out is the named method's, else the config's (`actor`). */
export interface LossOptions extends Pick<ActorInput, 'policyLoss' | Flagged<typeof actor.entries, 'ofLoss'>> {
  /** That of the samples. Absent = `rollout.temperature`; for cross_entropy 1. */
  temperature?: number | undefined;
  /** Rows of the whole update, what seq-mean-* divide by; absent = those of this call. Set it where an update takes several calls. */
  globalBatchSize?: number | undefined;
  /** Trained tokens of the whole update, what token-mean divides by; absent = those of this call. */
  batchNumTokens?: number | undefined;
  /** What seq-mean-token-sum-norm divides by; absent = `data.maxResponseLength`. */
  maxResponseLength?: number | undefined;
}

export interface ForwardBackwardResult extends TokenValues {
  /** Value of what was differentiated, KL and entropy terms included; NaN for a function that returns no `loss`. */
  loss: number;
  /** verl's names: actor/pg_loss, actor/ppo_kl, actor/entropy, ...; where rows have log-probs, training/rollout_probs_diff_*. */
  metrics: Metrics;
}

/** Numbers of an optimizer step; what is left out is the config's (`actor.optim`, `actor.gradClip`). */
export interface OptimStepOptions {
  /** Absent = the config's, by its schedule. */
  lr?: number | undefined;
  /** AdamW's decays. */
  betas?: [number, number] | undefined;
  /** AdamW's, added to the root of the squared mean. */
  eps?: number | undefined;
  /** Same as OptimizerOptions.weightDecay. */
  weightDecay?: number | undefined;
  /** Largest global L2 norm of the gradient; 0 = no clipping. */
  gradClip?: number | undefined;
}

/** What an optimizer step did. */
export interface OptimStepResult {
  /** Global L2 norm before clipping. */
  gradNorm: number;
  /** The learning rate that was used. */
  lr: number;
  /** True if the norm was not finite: the weights are as they were, the gradient is gone. */
  skipped: boolean;
  /** Optimizer steps so far, which is the version of the weights. */
  updates: number;
}
