/** The pipelines as numbers: how many groups are generated, when rollout gets the weights, what is too old. */

import type { TrainConfig } from '../config/types.ts';

type Settings = Pick<TrainConfig, 'trainer' | 'asyncTraining' | 'data' | 'actor'>;

/** When groups are generated, and with which weights. */
export interface Schedule {
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

/** `trainer.pipeline`, with its settings. */
export interface Pipeline extends Schedule {
  name: Settings['trainer']['pipeline'];
  /** True if rollout generates while training runs; false = in turn. */
  isAsync: boolean;
  /** True if rollout samples by older weights than those that are trained, and so needs its own. */
  needsCopy: boolean;
}

type Numbers = Omit<Pipeline, 'name' | 'needsCopy'>;

const onPolicy = (stepGroups: number): Numbers => ({
  ...{ isAsync: false, stepGroups, syncSteps: 1, maxGroups: stepGroups, maxAge: 0, partial: false, inOrder: true },
});

/** The pipelines by name; a new one is an entry here, and one in `trainer.pipeline` of the schema. */
const PIPELINES: Readonly<Record<Pipeline['name'], (config: Settings) => Numbers>> = {
  'on-policy': ({ data }) => onPolicy(data.trainBatchSize),
  // The fully asynchronous one with a batch ahead, in order, and no request cut short.
  'one-step-off': ({ data }) => ({
    ...onPolicy(data.trainBatchSize),
    ...{ isAsync: true, maxGroups: 2 * data.trainBatchSize, maxAge: 1 },
  }),
  'fully-async': ({ data, actor, asyncTraining }) => {
    const { stalenessThreshold, triggerParameterSyncStep: syncSteps, requireBatches } = asyncTraining;
    const stepGroups = requireBatches === undefined ? data.trainBatchSize : requireBatches * actor.ppoMiniBatchSize;
    return {
      ...{ isAsync: true, stepGroups, syncSteps },
      maxGroups: Math.floor(stepGroups * syncSteps * (1 + stalenessThreshold)),
      maxAge: Math.ceil(stalenessThreshold),
      partial: asyncTraining.partialRollout,
      inOrder: asyncTraining.onStale === 'wait',
    };
  },
};

/** The pipeline of a run. */
export function pipelineOf(config: Settings): Pipeline {
  const name = config.trainer.pipeline;
  const schedule = PIPELINES[name](config);
  const { isAsync, syncSteps, maxGroups, stepGroups, partial } = schedule;
  return { name, ...schedule, needsCopy: isAsync && (syncSteps > 1 || (maxGroups > stepGroups && !partial)) };
}
