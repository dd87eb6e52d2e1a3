/** Generates groups with the engine's own rollout, on the same device or on another one. */

import type { SourceOptions } from '../../grpo/generate/samples.ts';
import { recordsOf } from './records.ts';
import { GroupsInFlight, type RunningGroup } from './groupsInFlight.ts';
import { checkpointEngineOf } from '../../grpo/pipeline/sharedWeights.ts';
import {
  type CheckpointEngine,
  type PromptGroup,
  type PutRecords,
  type Rollouter,
  uidOfGroup,
  type SavedGroup,
} from '../../grpo/pipeline/types.ts';

/** Rollouter that uses the engine's own rollout. */
export class LocalRollouter implements Rollouter {
  readonly pause?: () => Promise<void>;
  readonly #rollout: SourceOptions['engine']['rollout'];
  readonly #put: PutRecords;
  readonly #weights: CheckpointEngine;
  /** Groups whose records are not in the queue yet. */
  readonly #running: GroupsInFlight;
  #failing = failing();

  constructor(options: SourceOptions, put: PutRecords) {
    this.#rollout = options.engine.rollout;
    this.#put = put;
    this.#running = new GroupsInFlight(options);
    this.#weights = checkpointEngineOf(options.engine);
    if (this.#weights.backend === 'shared') this.pause = () => this.#rollout.pause();
  }

  get failed(): Promise<never> {
    return this.#failing.failed;
  }

  async start(groups: readonly PromptGroup[]): Promise<void> {
    for (const group of this.#running.start(groups)) this.#watch(group);
  }

  async updateWeights(version: number) {
    const transfer = await this.#weights.updateWeights(version);
    await this.#rollout.resume();
    return transfer;
  }

  async save(): Promise<SavedGroup[]> {
    const saved = await this.#running.save();
    await this.#rollout.resume();
    return saved;
  }

  async restore(groups: readonly SavedGroup[]): Promise<void> {
    await this.#running.restore(groups, (group) => this.#watch(group));
    await this.#rollout.resume();
  }

  async close(): Promise<void> {
    await this.#running.close();
    this.#failing = failing();
  }

  /** Puts the group's samples into the queue once all are scored, unless the group was aborted. */
  #watch(group: RunningGroup): void {
    const uid = uidOfGroup(group.origin);
    const isRunning = () => this.#running.all.includes(group);
    const { fail } = this.#failing;
    const finish = async () => {
      const samples = await group.samples;
      if (!isRunning()) return;
      await this.#put(recordsOf(samples, group.outside, { uid, worker: 'local' }));
      this.#running.remove(group);
    };
    finish().catch((error: unknown) => isRunning() && fail(error));
  }
}

/**
 * Creates a promise that never resolves. It can reject before a caller awaits it without an unhandled-rejection error.
 */
function failing(): { failed: Promise<never>; fail: (error: unknown) => void } {
  let fail = (_: unknown): void => {};
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => {});
  return { failed, fail };
}
