/**
 * Config part `asyncTraining`, as in verl: how far rollout can run ahead of training if `trainer.pipeline` is
 * fully-async.
 */

import { choice, count, flag, number, part, positive } from '../keys.ts';

export const asyncTraining = part({
  stalenessThreshold: number(0.5, [0, 8], 'share', {
    why: 'Extra groups to generate between two syncs, as a fraction of those that the steps train on. 0 = no group is left over, so no group is stale; verl advises at most 1.',
    verl: '=',
    note: 'in verl.experimental.fully_async_policy, like the next three',
  }),
  triggerParameterSyncStep: count(1, 'steps', { why: 'Steps between two weight syncs to rollout.', verl: '=' }),
  requireBatches: count(undefined, 'mini-batches', {
    why: 'A step takes requireBatches x actor.ppoMiniBatchSize groups, which sets data.trainBatchSize. Default: derived from data.trainBatchSize.',
    verl: '=',
  }),
  partialRollout: flag(true, {
    why: 'Requests in flight at a sync continue under the new weights; false = they finish first. Has an effect if stalenessThreshold is above 0.',
    verl: '=',
  }),
  maxOffPolicyThreshold: count(8, 'syncs', {
    min: 0,
    why: "Maximum age of a group's oldest token. An older group is dropped, and another problem takes its place. A low maximum drops long and slow samples more often than others.",
    verl: 'trainer.v1.sampler.max_off_policy_threshold',
    note: "in verl's V1 trainer, whose max_off_policy_strategy is asyncTraining.onStale",
  }),
  onStale: choice(
    'drop',
    ['drop', 'wait'],
    'drop = train on groups as they are complete, and drop those that are too old. wait = train on groups in start order, so that none becomes too old.',
  ),
  queueMib: positive(
    256,
    'MiB',
    'Maximum memory of finished samples that wait for their step. Rollout waits while the samples take more.',
  ),
});
