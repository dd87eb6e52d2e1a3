/**
 * The two interfaces between rollout and training that run concurrently: the rollouter, and the transfer of weights.
 */

import type { SavedSample } from '../../rollout/agent/record.ts';
import type { Metrics } from '../metrics.ts';
import type { ExperienceRecord } from './record.ts';
import type { Problem } from '../../tasks/task.ts';

/** Costs of one weight transfer. */
export interface WeightTransfer {
  /** Weight version with which rollout samples from now on. */
  version: number;
  /** Bytes moved between buffers, devices or machines; 0 if rollout reads the trained buffers. */
  bytes: number;
  /** Wall-clock seconds. */
  seconds: number;
  /** Part of `seconds` in which one bucket was read while another was written. */
  overlapSeconds: number;
}

/** Syncs the trained weights to rollout: verl's checkpoint engine. */
export interface CheckpointEngine {
  /**
   * Kind of transfer. shared = rollout reads the buffers that training writes; copy = separate buffers on the same
   * device; stream = another device, bucket by bucket; nats = other machines.
   */
  readonly backend: 'shared' | 'copy' | 'stream' | 'nats';
  /**
   * Makes rollout sample with the current weights, as version `version`, from the next token boundary on. Requests in
   * flight continue under the new weights. The policy must not be updated during the call.
   */
  updateWeights(version: number): Promise<WeightTransfer>;
}

/** A group to generate: one problem, `rollout.n` samples. */
export interface PromptGroup {
  /** Number of the group's problem, which all its samples share. */
  number: number;
  /** Index of the problem in the task, set if problems are sampled by difficulty. */
  index?: number | undefined;
  problem: Problem;
  /** Step that started the group. Together with `number`, it makes the group's random keys (`randomKey`) unique. */
  step: number;
}

/** A group that was in flight when the checkpoint was written. */
export interface SavedGroup {
  /** Number of the group's problem. */
  number: number;
  /** Index of the problem in the task, if problems are sampled by difficulty. */
  index?: number | undefined;
  problem: Problem;
  /** Step that started the group; part of the random keys of its samples. */
  step: number;
  samples: SavedSample[];
}

/** Returns the id of a group, unique in the run. `{uid}_{s}` is the queue's key for sample s of the group. */
export const uidOfGroup = ({ step, number }: Pick<PromptGroup, 'step' | 'number'>): string => `${step}.${number}`;

/**
 * Delivers records of scored samples, one or several per call, each record once. Resolves when the records fit into the
 * queue. Ignores records of a group that was not started or was cancelled.
 */
export type PutRecords = (records: readonly ExperienceRecord[]) => Promise<void>;

/** Generates groups and delivers their samples: on this device, on another one, or on other machines. */
export interface Rollouter {
  /** Starts these groups; resolves once they are accepted. */
  start(groups: readonly PromptGroup[]): Promise<void>;
  /** Like `CheckpointEngine.updateWeights`, for every worker that generates. Also ends a `pause`. */
  updateWeights(version: number): Promise<WeightTransfer>;
  /**
   * Stops sampling. Called before the weights that rollout reads change in place. Undefined if rollout has its own copy
   * of the weights.
   */
  pause?(): Promise<void>;
  /**
   * Saves the groups in flight with the current state of each sample. Undefined if a resumed run must generate these
   * groups again.
   */
  save?(): Promise<SavedGroup[]>;
  /**
   * True if a group that became too old to be trained on is generated again with the newest weights. Otherwise another
   * problem takes its place.
   */
  readonly restartsStale?: boolean;
  /** Resumes these groups before any other. */
  restore?(groups: readonly SavedGroup[]): Promise<void>;
  /** Returns additional metrics of a step. */
  metrics?(): Metrics;
  /** Rejects if a group that was started since the last `close` failed. */
  readonly failed: Promise<never>;
  /** Cancels all groups. No sample of these groups is delivered afterwards. */
  close(): Promise<void>;
}
