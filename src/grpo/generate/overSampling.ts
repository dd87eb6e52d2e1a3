/**
 * Over-sampling: a step starts more groups than it trains on and ends when enough are complete, so that it does not wait
 * for its longest samples. The rest is aborted, or (partial rollout) stands still during the update and goes on in the
 * next step under the new weights, its tokens and their log-probs kept. As in APRIL (arXiv:2509.18521) and Kimi k1.5.
 *
 * Which groups finish first follows from the clock, so such runs are not repeatable; and groups that end early are short
 * ones: without partial rollout, long answers are trained on less than they are sampled. A checkpoint names the problems of
 * what stands still, not its tokens: a resumed run starts those groups over.
 */

import type { RolloutEngine } from '../../rollout/types.ts';
import type { OutsideSeconds } from './samples.ts';
import type { Sample } from '../update/batch.ts';

/** A group being generated. */
export interface GroupUnderWay {
  /** Number of its problem. */
  problem: number;
  samples: Promise<Sample[]>;
  seconds: OutsideSeconds;
  abort(): void;
}

export class OverSampler {
  readonly #engine: RolloutEngine;
  readonly #options: { rate: number; partial: boolean };
  #left: GroupUnderWay[] = [];

  /** @param options rate = extra groups as a share; partial = carry on with what a step leaves. */
  constructor(engine: RolloutEngine, options: { rate: number; partial: boolean }) {
    this.#engine = engine;
    this.#options = options;
  }

  /** Problems of the groups that the last step left and the next will go on with. */
  get carried(): number[] {
    return this.#left.map(({ problem }) => problem);
  }

  /** The first `count` groups to be complete, of those carried over and of new ones. The engine stands still after it. */
  async take(count: number, start: (groups: number) => GroupUnderWay[]): Promise<GroupUnderWay[]> {
    await this.#engine.resume?.();
    const wanted = Math.ceil(count * (1 + this.#options.rate));
    this.#left.push(...start(wanted - this.#left.length));
    const { done, rest } = await firstDone(this.#left, count);
    this.#left = rest;
    if (this.#options.partial) await this.#engine.pause?.();
    else await this.#abortRest();
    return done;
  }

  /** Lets the engine run between two steps, for an evaluation; what is carried runs along. */
  async resume(): Promise<void> {
    await this.#engine.resume?.();
  }

  /** Ends what is still under way. */
  async close(): Promise<void> {
    await this.#engine.resume?.();
    await this.#abortRest();
  }

  async #abortRest(): Promise<void> {
    for (const { abort } of this.#left) abort();
    await Promise.all(this.#left.map(({ samples }) => samples));
    this.#left = [];
  }
}

/** The first `count` groups to be complete, in the order they were started; rejects with the first that fails. */
export async function firstDone(
  groups: GroupUnderWay[],
  count: number,
): Promise<{ done: GroupUnderWay[]; rest: GroupUnderWay[] }> {
  const complete = new Set<GroupUnderWay>();
  await new Promise<void>((resolve, reject) => {
    for (const group of groups)
      group.samples.then(() => {
        if (complete.size < count) complete.add(group);
        if (complete.size === count) resolve();
      }, reject);
  });
  return { done: groups.filter((g) => complete.has(g)), rest: groups.filter((g) => !complete.has(g)) };
}

/** Share of trained tokens that older weights than the newest drew. */
export function staleShare(samples: readonly Sample[]): number {
  const versions = samples.flatMap(({ trajectory: { mask, weightVersions } }) =>
    [...(weightVersions ?? [])].filter((_, t) => mask[t] === 1),
  );
  const newest = versions.reduce((a, b) => Math.max(a, b), 0);
  return versions.filter((version) => version < newest).length / Math.max(1, versions.length);
}
