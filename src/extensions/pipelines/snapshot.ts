/**
 * State of an asynchronous pipeline in a checkpoint: the queue, the groups in flight, and the weight versions that
 * rollout received.
 */

import * as v from 'valibot';
import { InputError } from '../../errors.ts';
import type { Problem } from '../../tasks/task.ts';
import { decodeGroups, encodeGroups } from './savedGroups.ts';
import type { PromptGroup, SavedGroup } from '../../grpo/pipeline/types.ts';

/** Counts of groups since the start of the run. */
export interface Counts {
  generated: number;
  stale: number;
  staleSamples: number;
  dropped: number;
}

export interface Snapshot {
  /** Groups started and not yet trained on, in start order. */
  groups: PromptGroup[];
  /** Started groups that are in flight. */
  inFlight: SavedGroup[];
  /** State from `ExperienceQueue.save`. */
  queue: unknown;
  /** Weight versions that rollout received, newest last. */
  syncs: number[];
  counts: Counts;
}

/** Returns a snapshot as plain JSON. */
export const encodeSnapshot = ({ inFlight, ...rest }: Snapshot): unknown => ({
  ...rest,
  inFlight: encodeGroups(inFlight),
});

/** Decodes what `encodeSnapshot` returned. Throws InputError for any other state. */
export function decodeSnapshot(saved: unknown, vocabSize: number): Snapshot {
  const result = v.safeParse(SNAPSHOT, saved);
  if (!result.success)
    throw new InputError(
      'The samples of the checkpoint that were not trained on yet cannot be read: parts.inFlight of its trainer_state.json is not ' +
        'what trainer.pipeline one-step-off or fully-async writes. Resume with the pipeline of the run, or remove "inFlight" from ' +
        '"parts" to restart these samples.',
    );
  const { inFlight, groups, ...rest } = result.output;
  return { ...rest, groups: groups, inFlight: decodeGroups(inFlight, vocabSize) };
}

const whole = v.pipe(v.number(), v.integer(), v.minValue(0));
const SNAPSHOT = v.object({
  groups: v.array(
    v.object({
      ...{ number: whole, step: whole, index: v.exactOptional(whole) },
      problem: v.custom<Problem>((value) => typeof value === 'object' && value !== null && 'messages' in value),
    }),
  ),
  inFlight: v.array(v.unknown()),
  queue: v.unknown(),
  syncs: v.array(whole),
  counts: v.object({ generated: whole, stale: whole, staleSamples: whole, dropped: whole }),
});
