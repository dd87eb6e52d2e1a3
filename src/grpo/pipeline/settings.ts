/** The two asynchronous pipelines as numbers: how many groups are generated, when rollout gets the weights, what is too old. */

import type { TrainConfig } from '../config/types.ts';

export interface AsyncSettings {
  /** Groups of a step. */
  stepGroups: number;
  /** Steps from one sync to the next. */
  syncSteps: number;
  /** Groups that are generated between two syncs, those left over at the first among them. */
  maxGroups: number;
  /** Syncs that the oldest token of a sample may lie back. */
  maxAge: number;
  /** Requests in flight at a sync continue under the new weights; else they finish first. */
  partial: boolean;
  /** Groups are trained on in the order in which they were begun; else as they are complete. */
  inOrder: boolean;
}

type Settings = Pick<TrainConfig, 'trainer' | 'asyncTraining' | 'data'>;

/** Undefined for on-policy. One-step-off is the fully asynchronous one with a whole batch ahead, in order, and nothing cut short. */
export function asyncSettings({ trainer, asyncTraining, data }: Settings): AsyncSettings | undefined {
  const stepGroups = data.trainBatchSize;
  if (trainer.pipeline === 'on-policy') return undefined;
  if (trainer.pipeline === 'one-step-off')
    return { stepGroups, syncSteps: 1, maxGroups: 2 * stepGroups, maxAge: 1, partial: false, inOrder: true };
  const { stalenessThreshold, triggerParameterSyncStep: syncSteps, partialRollout, onStale } = asyncTraining;
  return {
    stepGroups,
    syncSteps,
    maxGroups: Math.floor(stepGroups * syncSteps * (1 + stalenessThreshold)),
    maxAge: Math.ceil(stalenessThreshold),
    partial: partialRollout,
    inOrder: onStale === 'wait',
  };
}

/** True if rollout draws by older weights than those that are trained, and so needs its own. */
export function needsOwnWeights(config: Settings): boolean {
  const settings = asyncSettings(config);
  if (!settings) return false;
  const { syncSteps, maxGroups, stepGroups, partial } = settings;
  return syncSteps > 1 || (maxGroups > stepGroups && !partial);
}
