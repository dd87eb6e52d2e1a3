/**
 * Groups that are being generated, with a record of each sample. A checkpoint can store the records, and a resumed run
 * continues each sample at its last token.
 */

import { SampleRecord, StartLine } from '../../rollout/agent/record.ts';
import { nextTask, samplesStarted } from '../../rollout/agent/yield.ts';
import { type OutsideSpans, type SourceOptions, startGroups, stepOptions } from '../../grpo/generate/samples.ts';
import type { ProblemQueue } from '../../grpo/generate/problems.ts';
import type { Sample } from '../../grpo/update/batch.ts';
import type { PromptGroup, SavedGroup } from '../../grpo/pipeline/types.ts';
import { startTimer } from '../../tasks/timer.ts';

/** A started group. */
export interface RunningGroup {
  origin: PromptGroup;
  samples: Promise<Sample[]>;
  outside: OutsideSpans;
  records: readonly SampleRecord[];
  abort(): void;
}

/** Groups in flight on one engine, in the order of their start. */
export class GroupsInFlight {
  readonly #source: SourceOptions;
  #groups: RunningGroup[] = [];

  constructor(source: SourceOptions) {
    this.#source = source;
  }

  get all(): readonly RunningGroup[] {
    return this.#groups;
  }

  start(groups: readonly PromptGroup[]): RunningGroup[] {
    return this.add(groups.map((group) => startGroup(this.#source, group)));
  }

  /** Adds started groups. */
  add(groups: RunningGroup[]): RunningGroup[] {
    for (const { samples } of groups) samples.catch(() => {}); // a group can fail before it is awaited
    this.#groups.push(...groups);
    return groups;
  }

  /** Resumes the groups of a checkpoint. Afterwards the engine holds the requests of these groups and is paused. */
  async restore(saved: readonly SavedGroup[], onStart: (group: RunningGroup) => void = () => {}): Promise<void> {
    const { engine, problems } = this.#source;
    await engine.rollout.pause();
    const line = new StartLine();
    const restored = await Promise.all(saved.map((group) => problems.restored(group)));
    const groups = saved.map((group, i) => startGroup(this.#source, { ...group, problem: restored[i] }, line));
    this.add(groups).forEach(onStart);
    await line.opened(this.#toolMs);
    await nextTask(); // groups whose samples had all ended become complete again in this task
  }

  /**
   * Saves the current state of each sample. Waits for running tools and rewards, within their time limit. Leaves the
   * engine paused.
   */
  async save(): Promise<SavedGroup[]> {
    if (this.#groups.length === 0) return [];
    const { rollout } = this.#source.engine;
    const groups = [...this.#groups];
    await rollout.pause();
    const records = groups.flatMap((group) => group.records);
    await atMost(this.#toolMs, Promise.all(records.map((record) => record.idle())));
    const ids = records.flatMap(({ requestId }) => requestId ?? []);
    const drawn = await rollout.drawnSoFar(ids);
    const drawnBy = new Map(ids.map((id, i) => [id, drawn[i]]));
    const save = (record: SampleRecord) => record.save(drawnBy.get(record.requestId ?? ''));
    return Promise.all(
      groups.map(async (group) => ({ ...group.origin, samples: await Promise.all(group.records.map(save)) })),
    );
  }

  /**
   * Removes and returns the first `count` groups that are complete, in start order. `start` is called if fewer than
   * `wanted` groups are in flight. If a group fails, all others are aborted before the promise rejects.
   */
  async takeFirst(
    count: number,
    wanted: number,
    start: (missing: number) => Promise<unknown>,
  ): Promise<RunningGroup[]> {
    const { rollout } = this.#source.engine;
    try {
      const missing = wanted - this.#groups.length;
      if (missing > 0) {
        // Prompts are encoded one after another. A running engine would start each one at once, in batches that differ
        // from run to run, so the engine is paused until all requests have arrived.
        await rollout.pause();
        await start(missing);
        await samplesStarted();
      }
      await rollout.resume();
      const { done, rest } = await firstDone(this.#groups, count);
      this.#groups = rest;
      return done;
    } catch (error) {
      await this.close().catch(() => {});
      throw error;
    }
  }

  remove(group: RunningGroup): void {
    this.#groups = this.#groups.filter((other) => other !== group);
  }

  /** Aborts all groups and waits until they have ended. The engine must not be paused, or they never end. */
  async abort(): Promise<void> {
    const groups = this.#groups;
    this.#groups = [];
    for (const { abort } of groups) abort();
    await Promise.allSettled(groups.map(({ samples }) => samples));
  }

  /** Resumes the engine, aborts all groups and waits until they have ended. */
  async close(): Promise<void> {
    try {
      await this.#source.engine.rollout.resume();
    } finally {
      await this.abort();
    }
  }

  get #toolMs(): number {
    return this.#source.config.rollout.multiTurn.toolTimeoutS * 1000;
  }
}

/**
 * Draws problems as groups that are not started: first those of `requeued`, which it removes from the list, then new
 * ones.
 */
export async function drawGroups(
  problems: ProblemQueue,
  { count, step, requeued }: { count: number; step: number; requeued: number[] },
): Promise<PromptGroup[]> {
  const again = requeued.splice(0, count);
  const numbers = [...again, ...(await problems.takeNumbers(count - again.length))];
  const drawn = await problems.get(numbers);
  return drawn.map((problem, i) => {
    const index = problems.indexOf(problem);
    return { number: numbers[i], ...(index !== undefined && { index }), problem, step };
  });
}

/**
 * Starts a group's samples; saved samples continue at their last token.
 * @param line makes saved samples start in the order in which they were saved
 */
function startGroup(
  source: SourceOptions,
  { samples: saved = [], ...origin }: PromptGroup & Partial<SavedGroup>,
  line?: StartLine,
): RunningGroup {
  const { number, problem, step } = origin;
  const controller = new AbortController();
  const options = stepOptions(source, step);
  const records = Array.from({ length: options.n }, (_, s) => new SampleRecord(saved[s], line));
  const { signal } = controller;
  const { groups, outside } = startGroups([problem], { ...options, firstGroup: number, signal, records });
  return { origin, samples: groups[0], outside, records, abort: () => controller.abort() };
}

/** Returns the first `count` groups that are complete, in start order. Rejects with the first group that fails. */
export async function firstDone<G extends { samples: Promise<unknown> }>(
  groups: readonly G[],
  count: number,
): Promise<{ done: G[]; rest: G[] }> {
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

async function atMost(ms: number, work: Promise<unknown>): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  await Promise.race([work, new Promise<void>((resolve) => (timer = startTimer(resolve, ms)))]);
  clearTimeout(timer);
}
