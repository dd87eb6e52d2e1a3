/**
 * Limits on how far rollout and training run apart if `trainer.pipeline` is fully-async: verl's `async_training`.
 */

import { choice, count, flag, number, part, positive } from '../keys.ts';

export const asyncTraining = part({
  stalenessThreshold: number(0.5, [0, 8], 'share', {
    why: 'So many more groups are generated between two syncs than are trained on; 0 = none is left over, and so none is stale. Not above 1, verl advises.',
    verl: '=',
    note: 'of verl.experimental.fully_async_policy, as the next three',
  }),
  triggerParameterSyncStep: count(1, 'steps', { why: 'Rollout gets the weights every so many.', verl: '=' }),
  requireBatches: count(undefined, 'mini-batches', {
    why: 'A step takes so many x actor.ppoMiniBatchSize groups, and data.trainBatchSize is their number; absent = as many as that makes.',
    verl: '=',
  }),
  partialRollout: flag(true, {
    why: 'Requests under way at a sync go on under the new weights; false = they finish first. Matters where stalenessThreshold is above 0.',
    verl: '=',
  }),
  onStale: choice(
    'drop',
    ['drop', 'wait'],
    'drop = groups are trained on as they are complete, those that have become too old are left out; wait = in the order in which they were begun, so none becomes too old.',
  ),
  queueMib: positive(256, 'MiB', 'What finished samples may take before those that generate have to wait.'),
});
