/** Types of the trainer: its engine, its state from step to step, and its events. */

import type { ModelEngine, TensorMap } from '../model/engine.ts';
import type { ChatTokenizer } from '../model/tokenizer/chat.ts';
import type { RolloutEngine } from '../rollout/types.ts';
import type { RoleBaselines } from './advantages/index.ts';
import type { Fault } from './health.ts';
import type { Metrics } from './metrics.ts';
import type { LOWERED_KEYS } from './config/schema/model.ts';
import type { CheckpointEngine } from './pipeline/types.ts';
import type { Sample } from './update/batch.ts';
import type { StepExtras, StepTokens } from './update/stepTokens.ts';
import type { UpdatedTokens } from './update/tokenNumbers.ts';

/**
 * Engine of a trainer: models and rollout. `reference` holds the frozen start weights; it exists only if a KL term or a
 * judge needs it.
 */
export interface TrainerEngine {
  /** Tokenizer in the controller's thread, whichever thread the engine is in. */
  tokenizer: ChatTokenizer;
  /** Policy: log-probs, gradients, optimizer. */
  model: ModelEngine;
  /** Rollout with the policy's own weights, or with those of the last sync by `checkpointEngine`. */
  rollout: RolloutEngine;
  /** Syncs the policy's weights to `rollout` if it has a copy. Undefined: both use the same buffers. */
  checkpointEngine?: CheckpointEngine;
  /** Frozen start weights. */
  reference?: ModelEngine;
  /** Rollout with the judge's weights; exists if a judge on our own engine returns a score. */
  judge?: RolloutEngine;
  /**
   * A separate model that decides a rubric's criteria. Undefined if the reference or a model of transformers.js decides
   * them.
   */
  judgeModel?: ModelEngine;
  /** Settings that were lowered so that the engine fits its device. Undefined if none was. */
  lowered?: Lowered;
  /** Tokenizer of a judge that has its own weights. Default: the policy's tokenizer. */
  judgeTokenizer?: ChatTokenizer;
}

/** Values of settings that were lowered (`model.lowerToFit`), by the key of the config. */
export type LoweredSettings = { [K in (typeof LOWERED_KEYS)[number]]?: number };

/** Settings with lower values than in the config, because the engine would not fit otherwise. */
export interface Lowered {
  values: LoweredSettings;
  /** Old and new values, and the reasons. */
  note: string;
}

/** Current phase of a step; `tools` and `reward` overlap with `generate`. */
export type Phase = 'generate' | 'tools' | 'reward' | 'log-probs' | 'update' | 'sync' | 'validate';

/** Inputs of a step's update in addition to its samples. All data is on this thread. */
export interface StepInputs {
  tokens: StepTokens;
  extras: StepExtras;
  /** True if each mini-batch is averaged over its own number of samples, because the caller chooses the size of a step. */
  isOwnSize?: true;
  /**
   * Returns the update's ratio, clip and gradient of each token, computed from values that the update has already read
   * back. The values stay in memory as long as this function does. Only with the trainer's `inspect`.
   */
  updated?(): UpdatedTokens;
}

/** Events of a run. If one of these functions throws, the run ends. */
export interface TrainerEvents {
  /** Called at the start of each phase of a step. */
  onPhase?(phase: Phase, step: number): void;
  /** Called with every sample when it is scored, before the step ends. */
  onSample?(sample: Sample, step: number): void;
  /** Called after each step, and after the evaluation of step 0 (with its metrics only). */
  onStep?(metrics: Metrics, samples: Sample[], inputs?: StepInputs): void | Promise<void>;
  /** Called during an evaluation. `done` and `total` count problems, `tokens` the tokens of the answers so far. */
  onEvaluating?(done: number, total: number, step: number, tokens: number): void;
  /** Called with the sampled answers of each evaluation, problem by problem. */
  onValidation?(samples: Sample[], step: number): void | Promise<void>;
  /**
   * Called with each fault of a finished step, and once for each kind of error for which samples were skipped
   * (trainer.onError: skip).
   */
  onFault?(fault: Fault): void | Promise<void>;
  /** Called for each setting changed by `GrpoTrainer.change`, at the start of the first step with the new value. */
  onChange?(change: LiveChange): void;
  /** Called for the first step that uses the rules of `GrpoTrainer.replace`. */
  onReplace?(step: number): void;
  /** Called with a checkpoint when one is due by `saveFreq` or `saveMinutes`. */
  onCheckpoint?(checkpoint: Checkpoint): void | Promise<void>;
}

/** Everything needed to resume a run exactly. */
export interface Checkpoint {
  /** Counters, as plain JSON. */
  state: TrainerState;
  /** Weights by Hugging Face's names, float32. With LoRA, only the adapters, by PEFT's names. */
  weights: TensorMap;
  /** Optimizer moments by name of the weight; see `ModelEngine.exportOptimizer`. */
  optimizer: TensorMap;
  /** Weights of the reference, if they are refreshed during the run. */
  reference?: TensorMap;
}

/** Counters of a run, as plain JSON. */
export interface TrainerState {
  /** Steps done. */
  step: number;
  /** Training problems drawn so far; dynamic sampling draws more than trainBatchSize per step. */
  problems: number;
  /** Optimizer steps so far. */
  updates: number;
  /** Coefficient of the KL in the reward, if klCtrl is adaptive and has changed the coefficient. */
  klCoef?: number;
  /**
   * Numbers of the problems whose groups are in flight between two steps; `parts.inFlight` of a checkpoint has their
   * samples.
   */
  carried?: number[];
  /**
   * Adaptive entropy bonus: its coefficient, and true if the last step's entropy was low enough for the bonus to apply.
   */
  entropy?: { coeff: number; acts: boolean };
  /** For rae: running mean reward of each role. */
  roleBaselines?: RoleBaselines;
  /** Settings that `GrpoTrainer.change` changed, in order. */
  changes?: LiveChange[];
  /** State of each stateful part (`parts.ts`) by name, as plain JSON. */
  parts?: Record<string, unknown>;
}

/** A setting that changed during the run. */
export interface LiveChange {
  /** First step with the new value. */
  step: number;
  /** One of LIVE_SETTINGS. */
  key: string;
  /** Value before the change. */
  from: number;
  /** Value of the setting from step `step` on. */
  to: number;
}

/** Result of `fit`. */
export interface FitResult {
  /** State of the trainer after the last step. */
  state: TrainerState;
  /** Metrics of every step, including evaluations. */
  history: Metrics[];
  /** True if `stop` ended the run early. */
  stopped: boolean;
  /** Reason if trainer.stopWhen ended the run. */
  reached?: string;
  /** Problems that persist at the end, one sentence each: failing tool calls, steps that do not train. */
  warnings: string[];
}
