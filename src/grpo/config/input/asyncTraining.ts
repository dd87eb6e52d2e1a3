/** `asyncTraining` of a training run, as a user writes it. Printed from the schema by test/printedInputs.ts. */

export interface AsyncTrainingInput {
  /** So many more groups are generated between two syncs than are trained on; 0 = none is left over, and so none is stale. Not above 1, verl advises. Allowed: 0 to 8 (share). Default: 0.5. */
  stalenessThreshold?: number | undefined;
  /** Rollout gets the weights every so many. Allowed: integer >= 1 (steps). Default: 1. */
  triggerParameterSyncStep?: number | undefined;
  /** A step takes so many x actor.ppoMiniBatchSize groups, and data.trainBatchSize is their number; absent = as many as that makes. Allowed: integer >= 1 (mini-batches). */
  requireBatches?: number | undefined;
  /** Requests under way at a sync go on under the new weights; false = they finish first. Matters where stalenessThreshold is above 0. Allowed: true | false. Default: true. */
  partialRollout?: boolean | undefined;
  /** drop = groups are trained on as they are complete, those that have become too old are left out; wait = in the order in which they were begun, so none becomes too old. Allowed: drop | wait. Default: "drop". */
  onStale?: 'drop' | 'wait' | undefined;
  /** What finished samples may take before those that generate have to wait. Allowed: > 0 (MiB). Default: 256. */
  queueMib?: number | undefined;
}
