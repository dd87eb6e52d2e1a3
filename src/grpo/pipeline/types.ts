/**
 * The two interfaces between rollout and training if they run concurrently: the rollouter, and the transfer of weights.
 */

import type { SavedSample } from '../../rollout/agent/record.ts';
import type { Metrics } from '../metrics.ts';
import type { ExperienceRecord } from './record.ts';
import type { Problem } from '../../tasks/task.ts';

/** Cost of one weight transfer. */
export interface WeightTransfer {
  /** Version of the policy with which rollout samples from now on. */
  version: number;
  /** Bytes moved between buffers, devices or machines; 0 if rollout reads the trained buffers. */
  bytes: number;
  /** Wall-clock seconds. */
  seconds: number;
  /** Part of these seconds in which one bucket was read while another was written. */
  overlapSeconds: number;
}

/** Syncs the trained weights to rollout: verl's checkpoint engine. */
export interface CheckpointEngine {
  /**
   * shared = rollout reads the buffers that training writes; copy = separate buffers on the same device; stream =
   * another device, bucket by bucket; nats = other machines.
   */
  readonly backend: 'shared' | 'copy' | 'stream' | 'nats';
  /**
   * Makes rollout sample with the current weights, as version `version`, from the next token boundary on. Requests in
   * flight continue under them. The policy must not be updated during the call.
   */
  updateWeights(version: number): Promise<WeightTransfer>;
}

/** A group to generate: one problem, `rollout.n` samples. */
export interface PromptGroup {
  /** Number of the group's problem, which all its samples share. */
  number: number;
  /** Index of the problem in the task, if problems are sampled by difficulty. */
  index?: number | undefined;
  problem: Problem;
  /** Step that started the group. Together with `number`, it makes the group's random keys (`randomKey`) unique. */
  step: number;
}

/** A group that was in flight when the checkpoint was written. */
export interface SavedGroup {
  /** Number of its problem. */
  number: number;
  /** Index of the problem in the task, if problems are sampled by difficulty. */
  index?: number | undefined;
  problem: Problem;
  /** Step that started the group; part of its random keys. */
  step: number;
  samples: SavedSample[];
}

/** Returns a name of a group that is unique in the run. `{uid}_{s}` is the key of its sample s in the queue. */
export const uidOfGroup = ({ step, number }: Pick<PromptGroup, 'step' | 'number'>): string => `${step}.${number}`;

/**
 * Delivers records of scored samples, one or several at a time, each once. Resolves when they fit into the queue.
 * Ignores records of a group that was not started or was cancelled.
 */
export type PutRecords = (records: readonly ExperienceRecord[]) => Promise<void>;

/** Generates groups and delivers their samples: on this device, on another one, or on other machines. */
export interface Rollouter {
  /** Starts these groups; resolves once they are accepted. */
  start(groups: readonly PromptGroup[]): Promise<void>;
  /** Like `CheckpointEngine.updateWeights`, on every worker that generates. Ends a `pause`. */
  updateWeights(version: number): Promise<WeightTransfer>;
  /** Called before the weights that rollout reads change in place: stops sampling. Undefined if rollout has a copy. */
  pause?(): Promise<void>;
  /**
   * Saves the groups in flight with the current state of each sample. Undefined if groups restart after a checkpoint.
   */
  save?(): Promise<SavedGroup[]>;
  /**
   * True if a group that is too old to be trained on is started again with the newest weights. Otherwise another problem takes its place.
   */
  readonly restartsStale?: boolean;
  /** Resumes these groups before any other. */
  restore?(groups: readonly SavedGroup[]): Promise<void>;
  /** Returns additional metrics of a step. */
  metrics?(): Metrics;
  /** Rejects if a group that was started since the last `close` failed. */
  readonly failed: Promise<never>;
  /** Cancels all groups. No sample of theirs is delivered afterwards. */
  close(): Promise<void>;
}
