/**
 * The pipelines as numbers: how many groups are generated ahead, when rollout receives new weights, how old a sample
 * can be.
 */

import type { TrainConfig } from '../config/types.ts';

type Settings = Pick<TrainConfig, 'trainer' | 'asyncTraining' | 'data' | 'actor'>;

/** Schedule of generation and weight syncs. */
export interface Schedule {
  /** Groups per step. */
  stepGroups: number;
  /** Number of steps from one weight sync to the next. */
  syncSteps: number;
  /** Maximum number of groups generated between two syncs, including those left over at the first sync. */
  maxGroups: number;
  /** Largest age of a sample's oldest token, in weight syncs. */
  maxAge: number;
  /** True if requests in flight at a sync continue under the new weights; false if they finish first. */
  partial: boolean;
  /** True if groups are trained on in start order; false if in the order of completion. */
  inOrder: boolean;
}

/** `trainer.pipeline`, with its settings. */
export interface Pipeline extends Schedule {
  name: Settings['trainer']['pipeline'];
  /** True if rollout generates while training runs; false if they alternate. */
  isAsync: boolean;
  /** True if rollout samples with older weights than the trained ones, and therefore needs a copy of the weights. */
  needsCopy: boolean;
}

type Numbers = Omit<Pipeline, 'name' | 'needsCopy'>;

const onPolicy = (stepGroups: number): Numbers => ({
  ...{ isAsync: false, stepGroups, syncSteps: 1, maxGroups: stepGroups, maxAge: 0, partial: false, inOrder: true },
});

/** Pipelines by name. To add one, add an entry here and one in `trainer.pipeline` of the schema. */
const PIPELINES: Readonly<Record<Pipeline['name'], (config: Settings) => Numbers>> = {
  'on-policy': ({ data }) => onPolicy(data.trainBatchSize),
  // one-step-off is fully-async with one batch ahead, groups in start order, and requests that finish before a sync.
  'one-step-off': ({ data }) => ({
    ...onPolicy(data.trainBatchSize),
    ...{ isAsync: true, maxGroups: 2 * data.trainBatchSize, maxAge: 1 },
  }),
  'fully-async': ({ data, actor, asyncTraining }) => {
    const { stalenessThreshold, triggerParameterSyncStep: syncSteps, requireBatches, onStale } = asyncTraining;
    const inOrder = onStale === 'wait';
    const stepGroups = requireBatches === undefined ? data.trainBatchSize : requireBatches * actor.ppoMiniBatchSize;
    return {
      ...{ isAsync: true, stepGroups, syncSteps },
      maxGroups: Math.floor(stepGroups * syncSteps * (1 + stalenessThreshold)),
      maxAge: inOrder ? Math.ceil(stalenessThreshold) : asyncTraining.maxOffPolicyThreshold,
      partial: asyncTraining.partialRollout,
      inOrder,
    };
  },
};

/** Returns the pipeline of a run. */
export function pipelineOf(config: Settings): Pipeline {
  const name = config.trainer.pipeline;
  const schedule = PIPELINES[name](config);
  const { isAsync, syncSteps, maxGroups, stepGroups, partial } = schedule;
  return { name, ...schedule, needsCopy: isAsync && (syncSteps > 1 || (maxGroups > stepGroups && !partial)) };
}
