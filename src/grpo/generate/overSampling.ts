/**
 * Over-sampling: a step starts more groups than it trains on and ends when enough are complete, so that it does not wait
 * for its longest samples. The rest is aborted, or (partial rollout) paused during the update and continued in the
 * next step under the new weights, its tokens and their log-probs kept. As in APRIL (arXiv:2509.18521) and Kimi k1.5.
 *
 * Which groups finish first follows from the clock, so such runs are not repeatable; and groups that end early are short
 * ones: without partial rollout, long answers are trained on less than they are sampled. A checkpoint names the problems of
 * paused groups, not their tokens: a resumed run starts those groups over.
 */

import type { Sample } from '../update/batch.ts';
import { type PendingGroup, PendingGroups } from './pendingGroups.ts';
import { type GeneratedStep, type SampleSource, type SourceOptions, startGroups, stepOptions } from './samples.ts';

/** Trains on the groups that are complete first; numbers groups by their problem, since they outlive a step. */
export class OverSampledGroups implements SampleSource {
  readonly #options: SourceOptions;
  readonly #pending: PendingGroups;
  /** Problems to draw before new ones. */
  #startOver: number[] = [];

  constructor(options: SourceOptions) {
    const { overSampleRate: rate, partialRollout: partial } = options.config.rollout;
    this.#options = options;
    this.#pending = new PendingGroups(options.engine.rollout, { rate, partial });
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    const groups = await this.#pending.takeFirst(config.data.trainBatchSize, () => this.#start(step));
    const samples = (await Promise.all(groups.map((group) => group.samples))).flat();
    problems.observe(samples);
    const seconds = { tools: 0, reward: 0 };
    for (const group of groups) {
      seconds.tools += group.seconds.tools;
      seconds.reward += group.seconds.reward;
    }
    const metrics = {
      'training/carried_groups': this.#pending.problems.length,
      'training/stale_tokens_share': staleShare(samples),
    };
    return { samples, seconds, stats: await engine.rollout.takeStats(), metrics };
  }

  get carried(): number[] {
    return [...this.#pending.problems, ...this.#startOver];
  }

  startOver(carried: readonly number[]): void {
    this.#startOver = [...carried];
  }

  resume(): Promise<void> {
    return this.#pending.resume();
  }

  async close(): Promise<void> {
    this.#startOver = this.carried;
    await this.#pending.close();
  }

  #start(step: number): PendingGroup {
    const { problems } = this.#options;
    const problem = this.#startOver.shift() ?? problems.takeNumber();
    const controller = new AbortController();
    const options = { ...stepOptions(this.#options, step), firstGroup: problem, signal: controller.signal };
    const { groups, seconds } = startGroups([problems.get(problem)], options);
    return { problem, samples: groups[0], seconds, abort: () => controller.abort() };
  }
}

/** Share of trained tokens that older weights than the newest drew. */
export function staleShare(samples: readonly Sample[]): number {
  const versions = samples.flatMap(({ trajectory: { mask, weightVersions } }) =>
    [...(weightVersions ?? [])].filter((_, t) => mask[t] === 1),
  );
  const newest = versions.reduce((a, b) => Math.max(a, b), 0);
  return versions.filter((version) => version < newest).length / Math.max(1, versions.length);
}
