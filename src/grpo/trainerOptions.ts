/** Options of GrpoTrainer. */

import type { ToolParser } from '../rollout/tools/parser.ts';
import type { Task } from '../tasks/task.ts';
import type { CustomAdvantage } from './advantages/index.ts';
import type { TrainConfig } from './config/types.ts';
import type { SampleSource } from './generate/samples.ts';
import type { AsyncCustomLoss } from './losses/custom.ts';
import type { PolicyLoss } from './losses/index.ts';
import type { RollouterFactory } from './pipeline/asyncGroups.ts';
import type { TrainerEngine, TrainerEvents } from './types.ts';

/** Parts of a trainer, and its events. */
export interface GrpoTrainerOptions extends TrainerEvents {
  /** Result of `resolveTrainConfig`, or parsed from YAML. */
  config: TrainConfig;
  /** Problems, tools and reward. */
  task: Task;
  /** Engine from `createLocalEngine` (this thread) or `createRemoteEngine` (a worker), with the sizes of the config. */
  engine: TrainerEngine;
  /**
   * Replaces the configured policy loss, and not the KL and entropy terms beside it: a row, which runs fused as the shipped ones
   * do where it has WGSL, or a function of a mini-batch. Without WGSL either runs on this thread, between forward and backward.
   */
  loss?: AsyncCustomLoss | PolicyLoss;
  /** Replaces the parser that rollout.multiTurn.format names. */
  toolParser?: ToolParser;
  /** Replaces the configured advantage estimator. */
  advantage?: CustomAdvantage;
  /** Hands `onStep` a function that tells what the update made of each token: `StepInputs.updated`. Changes nothing that is computed. */
  inspect?: boolean;
  /** Replaces the samples that the trainer generates of the task's problems, which then serve evaluations alone. */
  source?: SampleSource;
  /** Replaces who generates where trainer.pipeline is one-step-off or fully-async; absent = the engine's rollout. */
  rollouter?: RollouterFactory;
}

/** Events with a function each, but for `onCheckpoint`: a checkpoint is made only if it is asked for. */
export type Events = Required<Omit<TrainerEvents, 'onCheckpoint'>> & Pick<TrainerEvents, 'onCheckpoint'>;

/** Returns the events that were given; the others do nothing. */
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
