/**
 * Over-sampling: a step starts more groups than it trains on and ends when enough are complete, so that it does not wait
 * for its longest samples. The rest is aborted, or (partial rollout) paused during the update and continued in the
 * next step under the new weights, its tokens and their log-probs kept. As in APRIL (arXiv:2509.18521) and Kimi k1.5.
 *
 * Which groups finish first follows from the numbers of tokens alone, unless a tool or a reward waits for something outside.
 * Groups that end early are short ones: without partial rollout, long answers are trained on less than they are sampled. A
 * checkpoint holds every sample of the paused groups, and a run that resumes from it continues each sample at its last token.
 */

import { type RecordedGroup, restartRecorded, saveRecorded, startRecorded } from '../pipeline/recordedGroups.ts';
import type { Sample } from '../update/batch.ts';
import { decodeGroups, encodeGroups, type SavedGroup } from './inFlight.ts';
import { PendingGroups } from './pendingGroups.ts';
import type { GeneratedStep, SampleSource, SourceOptions } from './samples.ts';

/** Trains on the groups that are complete first; numbers groups by their problem, since they outlive a step. */
export class OverSampledGroups implements SampleSource {
  readonly #options: SourceOptions;
  readonly #pending: PendingGroups<RecordedGroup>;
  /** Groups of a checkpoint, to resume. */
  #saved: SavedGroup[] = [];
  /** Problems to draw before new ones. */
  #startOver: number[] = [];

  constructor(options: SourceOptions) {
    const { overSampleRate: rate, partialRollout: partial } = options.config.rollout;
    this.#options = options;
    this.#pending = new PendingGroups(options.engine.rollout, { rate, partial });
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    if (this.#saved.length > 0)
      await restartRecorded(this.#options, this.#saved.splice(0), (groups) => this.#pending.add(groups));
    const groups = await this.#pending.takeFirst(config.data.trainBatchSize, (missing) => this.#start(step, missing));
    const samples = (await Promise.all(groups.map((group) => group.samples))).flat();
    await problems.observe(samples);
    const seconds = { tools: 0, reward: 0 };
    for (const group of groups) {
      seconds.tools += group.seconds.tools;
      seconds.reward += group.seconds.reward;
    }
    const metrics = {
      'training/carried_groups': this.#pending.groups.length,
      'training/stale_tokens_share': staleShare(samples),
    };
    return { samples, seconds, stats: await engine.rollout.takeStats(), metrics };
  }

  get carried(): number[] {
    const underWay = this.#pending.groups.map(({ problem }) => problem);
    return [...underWay, ...this.#saved.map(({ number }) => number), ...this.#startOver];
  }

  startOver(carried: readonly number[]): void {
    this.#saved = [];
    this.#startOver = [...carried];
  }

  async save(): Promise<unknown> {
    const groups = [...(await saveRecorded(this.#options, this.#pending.groups)), ...this.#saved];
    return groups.length > 0 ? encodeGroups(groups) : undefined;
  }

  goOn(saved: unknown, vocabSize: number): void {
    this.#saved = decodeGroups(saved, vocabSize);
    this.#startOver = [];
  }

  resume(): Promise<void> {
    return this.#pending.resume();
  }

  pause(): Promise<void> {
    return this.#pending.pause();
  }

  async close(): Promise<void> {
    this.#saved.unshift(...(await saveRecorded(this.#options, this.#pending.groups)));
    await this.#pending.close();
  }

  async #start(step: number, count: number): Promise<RecordedGroup[]> {
    const { problems } = this.#options;
    const over = this.#startOver.splice(0, count);
    const numbers = [...over, ...(await problems.takeNumbers(count - over.length))];
    const drawn = await problems.get(numbers);
    return drawn.map((problem, i) => {
      const index = problems.indexOf(problem);
      const group = { number: numbers[i], problem, step, samples: [], ...(index !== undefined && { index }) };
      return startRecorded(this.#options, group);
    });
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
