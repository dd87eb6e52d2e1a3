/** Groups in flight at once, of which a step takes the first that are complete. */

import { samplesStarted } from '../../rollout/agent/yield.ts';
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

/** Keeps more groups in flight than a step needs; pauses or aborts the rest while the policy is updated. */
export class PendingGroups<G extends PendingGroup = PendingGroup> {
  readonly #engine: RolloutEngine;
  readonly #options: { rate: number; partial: boolean };
  #pending: G[] = [];

  /** @param options rate = extra groups as a share; partial = carry on with what a step leaves. */
  constructor(engine: RolloutEngine, options: { rate: number; partial: boolean }) {
    this.#engine = engine;
    this.#options = options;
  }

  /** The groups that the last step left and the next will continue with. */
  get groups(): readonly G[] {
    return this.#pending;
  }

  /** Adds groups; those that were in flight at a checkpoint while the engine is paused. */
  add(groups: readonly G[]): void {
    // A group can fail before it is awaited.
    for (const { samples } of groups) samples.catch(() => {});
    this.#pending.push(...groups);
  }

  /**
   * The first `count` groups to be complete, of those carried over and of new ones. Afterwards the engine is paused, or the rest
   * aborted; where one fails, all others are aborted before it rejects.
   */
  async takeFirst(count: number, start: (missing: number) => Promise<G[]>): Promise<G[]> {
    const wanted = Math.ceil(count * (1 + this.#options.rate));
    const taking = async () => {
      if (this.#pending.length < wanted) {
        // Prompts are encoded in turns that the clock decides; an engine that runs meanwhile would batch them by it.
        await this.#engine.pause?.();
        this.add(await start(wanted - this.#pending.length));
        await samplesStarted();
      }
      await this.#engine.resume?.();
      return firstDone(this.#pending, count);
    };
    const { done, rest } = await taking().catch(async (error: unknown) => {
      await Promise.allSettled([this.#engine.resume?.()]); // an engine that stands still ends no sample
      await this.#abortRest();
      throw error;
    });
    this.#pending = rest;
    if (this.#options.partial) await this.#engine.pause?.();
    else await this.#abortRest();
    return done;
  }

  /** Lets the engine run between two steps, for an evaluation; carried groups continue meanwhile. */
  async resume(): Promise<void> {
    await this.#engine.resume?.();
  }

  /** Stops it again, while there are groups to resume. */
  async pause(): Promise<void> {
    if (this.#pending.length > 0) await this.#engine.pause?.();
  }

  /** Aborts the groups that are still in flight. */
  async close(): Promise<void> {
    await this.#engine.resume?.();
    await this.#abortRest();
  }

  async #abortRest(): Promise<void> {
    for (const { abort } of this.#pending) abort();
    await Promise.allSettled(this.#pending.map(({ samples }) => samples));
    this.#pending = [];
  }
}

/** The first `count` groups to be complete, in the order they were started; rejects with the first that fails. */
export async function firstDone<G extends PendingGroup>(groups: G[], count: number): Promise<{ done: G[]; rest: G[] }> {
  const complete = new Set<G>();
  await new Promise<void>((resolve, reject) => {
    for (const group of groups)
      group.samples.then(() => {
        if (complete.size < count) complete.add(group);
        if (complete.size === count) resolve();
      }, reject);
  });
  return { done: groups.filter((g) => complete.has(g)), rest: groups.filter((g) => !complete.has(g)) };
}
