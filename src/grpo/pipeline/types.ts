/** The two interfaces between rollout and training where they run side by side: who generates, and how weights get there. */

import type { SavedGroup } from '../generate/savedGroups.ts';
import type { Metrics } from '../metrics.ts';
import type { ExperienceRecord } from '../queue/types.ts';
import type { Problem } from '../../tasks/task.ts';

/** What bringing weights to rollout took. */
export interface WeightTransfer {
  /** Version of the policy that rollout samples from now on. */
  version: number;
  /** Moved between buffers, devices or machines; 0 where rollout reads the trained buffers. */
  bytes: number;
  /** Wall clock, seconds. */
  seconds: number;
  /** Part of these seconds in which reading one bucket and writing another ran at the same time. */
  overlapSeconds: number;
}

/** Brings the trained weights to rollout: verl's checkpoint engine. */
export interface CheckpointEngine {
  /**
   * shared = rollout reads the buffers that training writes; copy = buffers of its own on the same device; stream = another device,
   * bucket by bucket; nats = other machines.
   */
  readonly backend: 'shared' | 'copy' | 'stream' | 'nats';
  /**
   * Rollout draws by the weights as they are now, called `version`, from the next token boundary on; requests in flight continue under
   * them. Nothing of the policy may be updated meanwhile.
   */
  updateWeights(version: number): Promise<WeightTransfer>;
}

/** A group that is to be generated: one problem, `rollout.n` samples. */
export interface PromptGroup {
  /** Number of its problem, and the number that its samples share. */
  number: number;
  /** Which of the task's problems it is, where they are drawn by difficulty. */
  index?: number | undefined;
  problem: Problem;
  /** The step that began it: with `number`, its random keys (`randomKey`) are those of no other group. */
  step: number;
}

/** Names a group, of the run: `{uid}_{s}` is the key of its sample s in the queue. */
export const uidOfGroup = ({ step, number }: Pick<PromptGroup, 'step' | 'number'>): string => `${step}.${number}`;

/**
 * Takes records of samples as they are scored, one by one or several at once, each once; resolves when the queue has room for them. Those
 * of a group that was not started, or was cancelled, are ignored.
 */
export type PutRecords = (records: readonly ExperienceRecord[]) => Promise<void>;

/** Generates groups and hands over their samples: on this device, on another one, or on other machines. */
export interface Rollouter {
  /** Begins these groups; resolves once they are accepted. */
  start(groups: readonly PromptGroup[]): Promise<void>;
  /** Like `CheckpointEngine.updateWeights`, on every worker that generates; ends what `pause` began. */
  updateWeights(version: number): Promise<WeightTransfer>;
  /** The weights that rollout reads are about to change in place: nothing is drawn any more. Absent = it has its own. */
  pause?(): Promise<void>;
  /** The groups that are in flight, each sample where it stands. Absent = they start over after a checkpoint. */
  save?(): Promise<SavedGroup[]>;
  /** Resumes with these, before any other. */
  restore?(groups: readonly SavedGroup[]): Promise<void>;
  /** More metrics of a step. */
  metrics?(): Metrics;
  /** Rejects if a group begun since the last `close` failed. */
  readonly failed: Promise<never>;
  /** Cancels all groups; none of their samples follows. */
  close(): Promise<void>;
}
