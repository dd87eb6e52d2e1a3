/** The trainer's engine, the state it keeps from step to step, and the events it reports. */

import type { ModelEngine, TensorMap } from '../model/engine.ts';
import type { ChatTokenizer } from '../model/tokenizer/chat.ts';
import type { RolloutEngine } from '../rollout/types.ts';
import type { RoleBaselines } from './advantages/index.ts';
import type { Fault } from './health.ts';
import type { Metrics } from './metrics.ts';
import type { CheckpointEngine } from './pipeline/types.ts';
import type { Sample } from './update/batch.ts';
import type { StepExtras, StepTokens } from './update/stepTokens.ts';
import type { UpdatedTokens } from './update/tokenNumbers.ts';

/** Everything the trainer drives. `reference` holds the frozen start weights and exists when a KL term or a judge needs it. */
export interface TrainerEngine {
  /** Stays with the controller, whichever thread the engine is in. */
  tokenizer: ChatTokenizer;
  /** The policy: log-probs, gradients, optimizer. */
  model: ModelEngine;
  /** Generates with the policy's own weights, or with those that `checkpointEngine` last brought it. */
  rollout: RolloutEngine;
  /** Brings the policy's weights to `rollout` where it has its own; absent = both are the same buffers. */
  checkpointEngine?: CheckpointEngine;
  /** The frozen start weights. */
  reference?: ModelEngine;
  /** Decodes with the judge's weights; exists where a judge on our own engine is to say a number. */
  judge?: RolloutEngine;
  /** A model of its own that decides a rubric's criteria; absent = the reference does, or a model of transformers.js. */
  judgeModel?: ModelEngine;
  /** Tokenizer of a judge with its own weights. Default: the policy's. */
  judgeTokenizer?: ChatTokenizer;
}

/** What a step is at; `tools` and `reward` overlap with `generate`. */
export type Phase = 'generate' | 'tools' | 'reward' | 'log-probs' | 'update' | 'sync' | 'validate';

/** What a step's update was computed from beside its samples; all of it is on this thread. */
export interface StepInputs {
  tokens: StepTokens;
  extras: StepExtras;
  /**
   * What the update made of each token: its ratio, clip, gradient. Computed when it is called, from what the update had read back
   * already; what it needs is held as long as this function is. Only with the trainer's `inspect`.
   */
  updated?(): UpdatedTokens;
}

/** What a run tells while it trains. What these functions throw ends the run. */
export interface TrainerEvents {
  /** At the start of each phase of a step. */
  onPhase?(phase: Phase, step: number): void;
  /** Every sample as it is scored, before the step is over. */
  onSample?(sample: Sample, step: number): void;
  /** After each step, and after the evaluation of step 0 (its metrics alone). */
  onStep?(metrics: Metrics, samples: Sample[], inputs?: StepInputs): void | Promise<void>;
  /** How many problems of an evaluation have been answered, as they are. */
  onEvaluating?(done: number, total: number, step: number): void;
  /** Sampled answers of each evaluation, problem by problem. */
  onValidation?(samples: Sample[], step: number): void | Promise<void>;
  /** Whatever is wrong with a step, once it is over, and each kind of sample that trainer.onError: skip leaves out, once. */
  onFault?(fault: Fault): void | Promise<void>;
  /** Each setting that `GrpoTrainer.change` has changed, at the start of the step that it is for. */
  onChange?(change: LiveChange): void;
  /** The first step that goes by what `GrpoTrainer.replace` was given. */
  onReplace?(step: number): void;
  /** When `saveFreq` or `saveMinutes` asks for one. */
  onCheckpoint?(checkpoint: Checkpoint): void | Promise<void>;
}

/** All that is needed to resume as if nothing had happened. */
export interface Checkpoint {
  /** Counters, as plain JSON. */
  state: TrainerState;
  /** By Hugging Face's names, float32; with adapters, the adapters alone by PEFT's. */
  weights: TensorMap;
  /** Moments by weight; see `ModelEngine.exportOptimizer`. */
  optimizer: TensorMap;
  /** Weights of the reference, where it is refreshed on the way. */
  reference?: TensorMap;
}

/** Counters of a run, as plain JSON. */
export interface TrainerState {
  /** Steps done. */
  step: number;
  /** Training problems drawn so far; dynamic sampling draws more than trainBatchSize a step. */
  problems: number;
  /** Optimizer steps so far. */
  updates: number;
  /** Coefficient of the KL in the reward, where klCtrl is adaptive and has moved it. */
  klCoef?: number;
  /** Problems of the groups that are in flight between two steps; `parts.inFlight` of a checkpoint has their samples. */
  carried?: number[];
  /** Adaptive entropy bonus: its coefficient, and whether the last step's entropy was low enough for it to act. */
  entropy?: { coeff: number; acts: boolean };
  /** rae: running mean reward of each role. */
  roleBaselines?: RoleBaselines;
  /** Settings that `GrpoTrainer.change` changed, in order. */
  changes?: LiveChange[];
  /** State of each part that keeps its own (`parts.ts`), by name: plain JSON. */
  parts?: Record<string, unknown>;
}

/** A setting that changed during the run. */
export interface LiveChange {
  /** The first step under the new value. */
  step: number;
  /** One of LIVE_SETTINGS. */
  key: string;
  /** Its value before. */
  from: number;
  /** Its value from that step on. */
  to: number;
}

/** How a run ended. */
export interface FitResult {
  /** State after the last step. */
  state: TrainerState;
  /** Metrics of every step, evaluations among them. */
  history: Metrics[];
  /** True when `stop` ended the run early. */
  stopped: boolean;
  /** Why trainer.stopWhen ended the run, where it did. */
  reached?: string;
  /** What is still wrong at the end: tool calls that fail, steps that do not train. One sentence each. */
  warnings: string[];
}
