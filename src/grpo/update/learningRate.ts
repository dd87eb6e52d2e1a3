/** Learning-rate schedules: the factor by which the peak rate is multiplied at each training step. */

import type { ModelConfig } from '../../model/config.ts';
import type { OptimizerOptions } from '../../model/engine.ts';
import { parameterCount } from '../../model/params.ts';
import type { TrainConfig } from '../config/types.ts';

/** Two points (number of parameters, peak rate). `defaultLr` interpolates between them on a log-log scale. */
const SMALL = { parameters: 2.3e6, lr: 2.5e-4 }; // the largest model of the shipped recipes, whose rates are 1e-4 to 1e-3
const LARGE = { parameters: 7e9, lr: 1e-6 }; // verl's and TRL's examples for models of 7 B

/**
 * Returns the peak rate of `actor.optim.lr: auto`, rounded to two digits. With LoRA it is ten times higher (Schulman et
 * al. 2025, "LoRA Without Regret"), at most 1e-3.
 */
export function defaultLr(parameters: number, isLora: boolean): number {
  const slope = Math.log(LARGE.lr / SMALL.lr) / Math.log(LARGE.parameters / SMALL.parameters);
  const within = Math.min(Math.max(parameters, SMALL.parameters), LARGE.parameters);
  const lr = SMALL.lr * (within / SMALL.parameters) ** slope;
  return Number((isLora ? Math.min(10 * lr, 1e-3) : lr).toPrecision(2));
}

/**
 * Returns the config with a number instead of `actor.optim.lr: auto`.
 * @param isLora true if adapters are trained; default: from the config
 */
export function withLr(
  config: TrainConfig,
  model: ModelConfig,
  isLora = config.model.loraRank > 0 || config.model.loraAdapterPath !== undefined,
): TrainConfig {
  const { actor } = config;
  if (actor.optim.lr !== 'auto') return config;
  const lr = defaultLr(parameterCount(model), isLora);
  return { ...config, actor: { ...actor, optim: { ...actor.optim, lr } } };
}

/** Returns the peak rate. Throws if it is "auto", which `withLr` must have replaced before a run starts. */
export function peakLr({ actor }: Pick<TrainConfig, 'actor'>): number {
  const { lr } = actor.optim;
  if (lr === 'auto') throw new Error('actor.optim.lr is still "auto". This is a bug.');
  return lr;
}

export interface LrSchedule {
  /**
   * Shape of the schedule: 'constant', or a decrease from the peak to minLrRatio as half a 'cosine' (both are verl's)
   * or as a line ('linear', Hugging Face's).
   */
  lrSchedulerType: 'constant' | 'cosine' | 'linear';
  /** Number of steps of the linear rise from 0 to the peak. */
  lrWarmupSteps: number;
  /** Number of steps in the full run; cosine and linear need it. */
  totalTrainingSteps: number;
  /** Share of the peak at which cosine and linear end. */
  minLrRatio: number;
  /** Number of cosine periods: 0.5 falls once from the peak to the floor. */
  numCycles: number;
}

/**
 * Number of steps of the linear rise, from verl's two keys: lrWarmupSteps if it is above 0, otherwise
 * lrWarmupStepsRatio of all steps.
 */
export function warmupSteps(
  { lrWarmupSteps, lrWarmupStepsRatio }: { lrWarmupSteps: number; lrWarmupStepsRatio: number },
  totalSteps: number,
): number {
  return lrWarmupSteps > 0 ? lrWarmupSteps : Math.floor(lrWarmupStepsRatio * totalSteps);
}

/**
 * Factor of the peak learning rate at step 0, 1, 2, ... The first warm-up step has (step + 1) / warm-up
 * instead of 0, so no update is wasted.
 */
export function lrFactor(schedule: LrSchedule, step: number): number {
  const { lrWarmupSteps, totalTrainingSteps, minLrRatio } = schedule;
  if (step < lrWarmupSteps) return (step + 1) / lrWarmupSteps;
  if (schedule.lrSchedulerType === 'constant') return 1;
  if (totalTrainingSteps <= lrWarmupSteps) {
    throw new RangeError(
      `A ${schedule.lrSchedulerType} schedule needs totalTrainingSteps above lrWarmupSteps (${lrWarmupSteps}), but it is ${totalTrainingSteps}.`,
    );
  }
  const progress = Math.min((step - lrWarmupSteps) / (totalTrainingSteps - lrWarmupSteps), 1);
  if (schedule.lrSchedulerType === 'linear') return minLrRatio + (1 - minLrRatio) * (1 - progress);
  const cosine = 0.5 * (1 + Math.cos(2 * Math.PI * schedule.numCycles * progress));
  return minLrRatio + (1 - minLrRatio) * Math.max(cosine, 0);
}

/** Learning rate of all updates of training step 0, 1, 2, ... of a run, as in verl. */
export function scheduledLr(config: TrainConfig, step: number): number {
  const { lrSchedulerType, minLrRatio, numCycles, ...warmup } = config.actor.optim;
  const { totalTrainingSteps } = config.trainer;
  const lrWarmupSteps = warmupSteps(warmup, totalTrainingSteps);
  return peakLr(config) * lrFactor({ lrSchedulerType, lrWarmupSteps, minLrRatio, numCycles, totalTrainingSteps }, step);
}

/** Options of the model's optimizer step from a config. */
export function optimizerOptions({ actor }: Pick<TrainConfig, 'actor'>, lr: number): OptimizerOptions {
  const { optimizer, betas, eps, weightDecay } = actor.optim;
  return { optimizer, lr, beta1: betas[0], beta2: betas[1], eps, weightDecay, gradClip: actor.gradClip };
}
