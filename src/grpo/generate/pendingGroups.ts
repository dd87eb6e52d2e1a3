/** Groups under way at once, of which a step takes the first that are complete. */

import type { RolloutEngine } from '../../rollout/types.ts';
import type { Sample } from '../update/batch.ts';
import type { OutsideSeconds } from './samples.ts';

/** A group being generated. */
export interface PendingGroup {
  /** Number of its problem. */
  problem: number;
  samples: Promise<Sample[]>;
  seconds: OutsideSeconds;
  abort(): void;
}

/** Keeps more groups under way than a step needs; pauses or aborts the rest while the policy is updated. */
export class PendingGroups {
  readonly #engine: RolloutEngine;
  readonly #options: { rate: number; partial: boolean };
  #pending: PendingGroup[] = [];

  /** @param options rate = extra groups as a share; partial = carry on with what a step leaves. */
  constructor(engine: RolloutEngine, options: { rate: number; partial: boolean }) {
    this.#engine = engine;
    this.#options = options;
  }

  /** Problems of the groups that the last step left and the next will go on with. */
  get problems(): number[] {
    return this.#pending.map(({ problem }) => problem);
  }

  /** The first `count` groups to be complete, of those carried over and of new ones. Afterwards the engine is paused, or the rest aborted. */
  async takeFirst(count: number, start: () => PendingGroup): Promise<PendingGroup[]> {
    await this.#engine.resume?.();
    const wanted = Math.ceil(count * (1 + this.#options.rate));
    while (this.#pending.length < wanted) this.#pending.push(start());
    const { done, rest } = await firstDone(this.#pending, count);
    this.#pending = rest;
    if (this.#options.partial) await this.#engine.pause?.();
    else await this.#abortRest();
    return done;
  }

  /** Lets the engine run between two steps, for an evaluation; carried groups go on meanwhile. */
  async resume(): Promise<void> {
    await this.#engine.resume?.();
  }

  /** Aborts the groups that are still under way. */
  async close(): Promise<void> {
    await this.#engine.resume?.();
    await this.#abortRest();
  }

  async #abortRest(): Promise<void> {
    for (const { abort } of this.#pending) abort();
    await Promise.all(this.#pending.map(({ samples }) => samples));
    this.#pending = [];
  }
}

/** The first `count` groups to be complete, in the order they were started; rejects with the first that fails. */
export async function firstDone(
  groups: PendingGroup[],
  count: number,
): Promise<{ done: PendingGroup[]; rest: PendingGroup[] }> {
  const complete = new Set<PendingGroup>();
  await new Promise<void>((resolve, reject) => {
    for (const group of groups)
      group.samples.then(() => {
        if (complete.size < count) complete.add(group);
        if (complete.size === count) resolve();
      }, reject);
  });
  return { done: groups.filter((g) => complete.has(g)), rest: groups.filter((g) => !complete.has(g)) };
}
