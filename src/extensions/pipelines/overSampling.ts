/**
 * Over-sampling: a step starts more groups than it trains on and ends when enough are complete, so that it does not
 * wait for its longest samples. The other groups are aborted. With partial rollout they are instead paused during the
 * update and continue in the next step under the new weights; their tokens and log-probs are kept. This is the method
 * of APRIL (arXiv:2509.18521) and Kimi k1.5.
 *
 * Which groups finish first depends only on numbers of tokens, unless a tool or a reward waits for something outside
 * this process. Groups that finish early are short ones: without partial rollout, long answers are trained on less
 * often than they are sampled. A checkpoint holds every sample of the paused groups, and a run that resumes from it
 * continues each sample at its last token.
 */

import { decodeGroups, encodeGroups } from './savedGroups.ts';
import {
  type GeneratedStep,
  outsideSeconds,
  type SampleSource,
  type SourceOptions,
} from '../../grpo/generate/samples.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import { drawGroups, GroupsInFlight } from './groupsInFlight.ts';
import { NothingInFlight } from '../../grpo/pipeline/nothingInFlight.ts';
import type { SavedGroup } from '../../grpo/pipeline/types.ts';

/**
 * Trains on the first groups that are complete. A group has the number of its problem, because a group can stay in
 * flight for several steps.
 */
export class OverSampledGroups extends NothingInFlight implements SampleSource {
  readonly inFlight = this;
  readonly #options: SourceOptions;
  readonly #running: GroupsInFlight;
  /** Groups of a checkpoint that are to be resumed. */
  #saved: SavedGroup[] = [];
  /** Numbers of problems to generate again before new ones. */
  #requeued: number[] = [];

  constructor(options: SourceOptions) {
    super();
    this.#options = options;
    this.#running = new GroupsInFlight(options);
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    const { overSampleRate, partialRollout } = config.rollout;
    const count = config.data.trainBatchSize;
    if (this.#saved.length > 0) await this.#running.restore(this.#saved.splice(0));
    const groups = await this.#running.takeFirst(count, Math.ceil(count * (1 + overSampleRate)), async (missing) =>
      this.#running.start(await drawGroups(problems, { count: missing, step, requeued: this.#requeued })),
    );
    await (partialRollout ? engine.rollout.pause() : this.#running.abort());
    const samples = (await Promise.all(groups.map((group) => group.samples))).flat();
    await problems.observe(samples);
    const seconds = outsideSeconds({
      tools: groups.flatMap(({ outside }) => outside.tools),
      reward: groups.flatMap(({ outside }) => outside.reward),
    });
    const metrics = {
      'training/carried_groups': this.#running.all.length,
      'training/stale_tokens_share': staleShare(samples),
    };
    return { samples, seconds, stats: await engine.rollout.takeStats(), metrics };
  }

  override get inFlightNumbers(): number[] {
    const running = this.#running.all.map(({ origin }) => origin);
    return [...[...running, ...this.#saved].map(({ number }) => number), ...this.#requeued];
  }

  override async save(): Promise<unknown> {
    const groups = [...(await this.#running.save()), ...this.#saved];
    return groups.length > 0 ? encodeGroups(groups) : undefined;
  }

  override restore(
    state: unknown,
    { inFlightNumbers, vocabSize }: { inFlightNumbers: readonly number[]; vocabSize: number },
  ): void {
    this.#saved = state === undefined ? [] : decodeGroups(state, vocabSize);
    this.#requeued = state === undefined ? [...inFlightNumbers] : [];
  }

  /** Groups in flight continue while the evaluation runs. */
  override async evaluate<T>(run: (onQueued: () => Promise<void>) => Promise<T>): Promise<T> {
    const { rollout } = this.#options.engine;
    try {
      return await run(async () => rollout.resume());
    } finally {
      if (this.#running.all.length > 0) await rollout.pause();
    }
  }

  override async close(): Promise<void> {
    this.#saved.unshift(...(await this.#running.save()));
    await this.#running.close();
  }
}

/** Share of trained tokens that were sampled by older weights than the newest. */
export function staleShare(samples: readonly Sample[]): number {
  const versions = samples.flatMap(({ trajectory: { mask, weightVersions } }) =>
    [...(weightVersions ?? [])].filter((_, t) => mask[t] === 1),
  );
  const newest = versions.reduce((a, b) => Math.max(a, b), 0);
  return versions.filter((version) => version < newest).length / Math.max(1, versions.length);
}
