/** Options of GrpoTrainer. */

import type { ToolParser } from '../rollout/tools/parser.ts';
import type { Task } from '../tasks/task.ts';
import type { CustomAdvantage } from './advantages/index.ts';
import type { TrainConfig } from './config/types.ts';
import type { SampleSource } from './generate/samples.ts';
import type { AsyncCustomLoss } from './losses/types.ts';
import type { PolicyLoss } from './losses/index.ts';
import type { RollouterFactory } from './pipeline/source.ts';
import type { TrainerEngine, TrainerEvents } from './types.ts';

/** Options of a trainer: its parts and its event handlers. */
export interface GrpoTrainerOptions extends TrainerEvents {
  /** Config from `resolveTrainConfig` or `parseTrainConfig`. */
  config: TrainConfig;
  /** Problems, tools and reward. */
  task: Task;
  /** Engine from `createLocalEngine` (this thread) or `createRemoteEngine` (a worker), with the sizes of the config. */
  engine: TrainerEngine;
  /**
   * Replaces the configured policy loss, but not the config's KL and entropy terms. Either a row (the loss of one
   * token) or a function of a mini-batch. A row with WGSL runs on the GPU, fused with forward and backward. Anything
   * else runs on this thread, between forward and backward.
   */
  loss?: AsyncCustomLoss | PolicyLoss;
  /** Parser of tool calls, instead of the one that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** Replaces the configured advantage estimator. */
  advantage?: CustomAdvantage;
  /**
   * True to pass `onStep` the function `StepInputs.updated`, which returns the ratio, clip and gradient of each token.
   * Does not change any result.
   */
  inspect?: boolean;
  /**
   * Source of samples, instead of generating them for the task's problems; the problems then serve evaluations alone.
   */
  source?: SampleSource;
  /** Creates the rollouter if trainer.pipeline is one-step-off or fully-async. Default: the engine's rollout. */
  rollouter?: RollouterFactory;
}

/**
 * Event handlers that were not given do nothing. `onCheckpoint` stays undefined, because a checkpoint is created only
 * if it has a handler.
 */
export type Events = Required<Omit<TrainerEvents, 'onCheckpoint'>> & Pick<TrainerEvents, 'onCheckpoint'>;

/** Returns all event handlers; those that were not given do nothing. */
export function eventsOf(given: TrainerEvents): Events {
  const ignore = () => {};
  return {
    onPhase: given.onPhase ?? ignore,
    onSample: given.onSample ?? ignore,
    onStep: given.onStep ?? ignore,
    onEvaluating: given.onEvaluating ?? ignore,
    onValidation: given.onValidation ?? ignore,
    onFault: given.onFault ?? ignore,
    onChange: given.onChange ?? ignore,
    onReplace: given.onReplace ?? ignore,
    ...(given.onCheckpoint && { onCheckpoint: given.onCheckpoint }),
  };
}
