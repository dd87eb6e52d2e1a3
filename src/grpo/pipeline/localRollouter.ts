/** Generates groups by the engine's own rollout, on this device or wherever the engine has it. */

import type { SavedGroup } from '../generate/inFlight.ts';
import type { SourceOptions } from '../generate/samples.ts';
import { recordOf } from '../queue/records.ts';
import { type RecordedGroup, restartRecorded, saveRecorded, startRecorded } from './recordedGroups.ts';
import { checkpointEngineOf } from './sharedWeights.ts';
import { type CheckpointEngine, type PromptGroup, type PutRecords, type Rollouter, uidOfGroup } from './types.ts';

export class LocalRollouter implements Rollouter {
  readonly pause?: () => Promise<void>;
  readonly #options: SourceOptions;
  readonly #put: PutRecords;
  readonly #weights: CheckpointEngine;
  /** Under way, by uid: until their records are in the queue. */
  readonly #groups = new Map<string, RecordedGroup>();
  #failing = failing();

  constructor(options: SourceOptions, put: PutRecords) {
    this.#options = options;
    this.#put = put;
    this.#weights = checkpointEngineOf(options.engine);
    if (this.#weights.backend === 'shared') this.pause = async () => this.#rollout.pause?.();
  }

  get failed(): Promise<never> {
    return this.#failing.failed;
  }

  async start(groups: readonly PromptGroup[]): Promise<void> {
    for (const group of groups) this.#add(startRecorded(this.#options, { ...group, samples: [] }));
  }

  async updateWeights(version: number) {
    const transfer = await this.#weights.updateWeights(version);
    await this.#rollout.resume?.();
    return transfer;
  }

  async save(): Promise<SavedGroup[]> {
    const saved = await saveRecorded(this.#options, [...this.#groups.values()]);
    await this.#rollout.resume?.();
    return saved;
  }

  async restore(groups: readonly SavedGroup[]): Promise<void> {
    await restartRecorded(this.#options, groups, (started) => started.forEach((group) => this.#add(group)));
    await this.#rollout.resume?.();
  }

  async close(): Promise<void> {
    const groups = [...this.#groups.values()];
    this.#groups.clear();
    await this.#rollout.resume?.(); // an engine that stands still ends no sample
    for (const { abort } of groups) abort();
    await Promise.allSettled(groups.map(({ samples }) => samples));
    this.#failing = failing();
  }

  get #rollout() {
    return this.#options.engine.rollout;
  }

  #add(group: RecordedGroup): void {
    const uid = uidOfGroup(group.origin);
    this.#groups.set(uid, group);
    const isOurs = () => this.#groups.get(uid) === group; // and not given up
    const { fail } = this.#failing;
    const finish = async () => {
      const samples = await group.samples;
      if (!isOurs()) return;
      const records = samples.map((sample, s) => recordOf(sample, { uid, sample: s, worker: 'local' }));
      const { tools, reward } = group.seconds;
      Object.assign(records[0].columns, { toolSeconds: tools, rewardSeconds: reward });
      await this.#put(records);
      if (isOurs()) this.#groups.delete(uid);
    };
    finish().catch((error: unknown) => isOurs() && fail(error));
  }
}

/** A promise that only rejects, and can do so before it is awaited. */
function failing(): { failed: Promise<never>; fail: (error: unknown) => void } {
  let fail = (_: unknown): void => {};
  const failed = new Promise<never>((_, reject) => (fail = reject));
  failed.catch(() => {});
  return { failed, fail };
}
