/**
 * The source of a step's samples where rollout and training go on side by side: one-step-off and fully asynchronous, as verl has them.
 * Groups are begun ahead, their samples go into the experience queue as they are scored, a step takes what it needs from there, and
 * rollout gets the weights every so many steps. Every group is trained on exactly once, or left out by a rule that counts it.
 */

import { InputError } from '../../errors.ts';
import { groupsWithSignal } from '../generate/filterGroups.ts';
import type { GeneratedStep, SampleSource, SourceOptions } from '../generate/samples.ts';
import type { Metrics } from '../metrics.ts';
import { MemoryQueue } from '../queue/memoryQueue.ts';
import { sampleOf } from '../queue/records.ts';
import { type ExperienceQueue, type ExperienceRecord, uidOf } from '../queue/types.ts';
import type { Sample } from '../update/batch.ts';
import { IdleClock } from './idleClock.ts';
import { LocalRollouter } from './localRollouter.ts';
import { type AsyncSettings, asyncSettings, needsOwnWeights } from './settings.ts';
import { checkpointEngineOf, transferMetrics } from './sharedWeights.ts';
import { decodeSnapshot, encodeSnapshot, type Snapshot } from './snapshot.ts';
import { isStale, stalenessMetrics } from './staleness.ts';
import { type PromptGroup, type PutRecords, type Rollouter, uidOfGroup, type WeightTransfer } from './types.ts';

/** Makes who generates; absent = the engine's own rollout. @param put where its records go */
export type MakeRollouter = (source: SourceOptions, put: PutRecords) => Rollouter;

interface Group extends PromptGroup {
  /** Keys of the records that have come. */
  come: Set<string>;
  /** All of them are in the queue. */
  isQueued: boolean;
}

/** A group as the queue gave it. */
interface TakenGroup {
  samples: Sample[];
  /** Syncs since the weights that drew its oldest token. */
  age: number;
  seconds: { tools: number; reward: number };
}

/** The run is to stop, and nobody generates what its step waits for: the step is given up, as if it had not begun. */
export class GivenUpError extends Error {
  override name = 'GivenUpError';
}

/** Swallows a GivenUpError, and throws any other again. */
export function unlessGivenUp(error: unknown): undefined {
  if (!(error instanceof GivenUpError)) throw error;
}

const PARTITION = 'train';
const MIB = 2 ** 20;

export class AsyncGroups implements SampleSource {
  readonly #options: SourceOptions;
  readonly #settings: AsyncSettings;
  readonly #queue: ExperienceQueue & { bytes?: number };
  readonly #rollouter: Rollouter;
  readonly #clock = new IdleClock();
  /** Begun and not yet taken, by uid, in the order in which they were begun. */
  readonly #groups = new Map<string, Group>();
  /** Begun since the last sync, with those that were left then; one that is left out gives its place to another. */
  #begun = 0;
  #syncs: number[] = [];
  /** Rollout may have other weights than the last of `#syncs`. */
  #isOutOfDate = true;
  /** The last step that was trained. */
  #trained = 0;
  #counts = { generated: 0, stale: 0, staleSamples: 0, dropped: 0 };
  /** What to go on with. */
  #saved: Snapshot | undefined;
  /** Problems to draw before new ones. */
  #startOver: number[] = [];
  #closing = new AbortController();
  #waiting: (() => void)[] = [];

  /** Throws InputError where the pipeline needs weights of rollout's own and the engine has none. */
  constructor(options: SourceOptions, make?: MakeRollouter) {
    const { config, engine } = options;
    const settings = asyncSettings(config);
    if (!settings) throw new Error('trainer.pipeline is on-policy, which generates and trains in turn.');
    if (!make && checkpointEngineOf(engine).backend === 'shared' && needsOwnWeights(config))
      throw new InputError(
        `trainer.pipeline is "${config.trainer.pipeline}", for which rollout needs weights of its own, but this engine shares them with ` +
          "training; make it with rolloutWeights: 'copy', or set trainer.pipeline: fully-async with asyncTraining.partialRollout: true " +
          'and triggerParameterSyncStep: 1.',
      );
    this.#options = options;
    this.#settings = settings;
    this.#queue = new MemoryQueue({ maxBytes: config.asyncTraining.queueMib * MIB });
    const put: PutRecords = (records) => this.#put(records);
    this.#rollouter = make ? make(options, put) : new LocalRollouter(options, put);
  }

  async generate(step: number): Promise<GeneratedStep> {
    const { config, engine, problems } = this.#options;
    const { stepGroups, maxAge } = this.#settings;
    this.#clock.start();
    if (this.#isOutOfDate) await this.#bring(step - 1);
    if (this.#saved) await this.#restart(this.#saved);
    const { enable: filters, metric, maxNumGenBatches } = config.algorithm.filterGroups;
    const [kept, evicted, dropped]: TakenGroup[][] = [[], [], []];
    while (kept.length < stepGroups && evicted.length + kept.length < maxNumGenBatches * stepGroups) {
      await this.#begin(step, stepGroups - kept.length);
      const group = await this.#clock.waits(this.#next());
      await problems.observe(group.samples);
      const leftOut = group.age > maxAge ? dropped : filters && !hasSignal(group, metric) ? evicted : undefined;
      if (leftOut) this.#begun--;
      (leftOut ?? kept).push(group);
    }
    this.#counts.dropped += dropped.length;
    // As FilteredGroups: a filter that left nothing would leave nothing to train on.
    const used = kept.length > 0 ? kept : evicted.slice(-stepGroups);
    const samples = used.flatMap((group) => group.samples);
    this.#count(used, step);
    const all = [...kept, ...evicted, ...dropped];
    const sum = (name: 'tools' | 'reward') => all.reduce((total, { seconds }) => total + seconds[name], 0);
    const metrics = {
      ...stalenessMetrics(samples, step),
      ...this.#countMetrics(),
      ...(filters && {
        'training/num_gen_prompts': kept.length + evicted.length,
        'training/evicted_groups': evicted.length,
      }),
    };
    const seconds = { tools: sum('tools'), reward: sum('reward') };
    return { samples, seconds, stats: await engine.rollout.takeStats(), metrics };
  }

  async updating(): Promise<void> {
    if (!this.#rollouter.pause) return;
    await this.#rollouter.pause();
    this.#clock.generates(false);
  }

  async sync(step: number): Promise<Metrics> {
    this.#trained = step;
    const isLast = step >= this.#options.config.trainer.totalTrainingSteps;
    const transfer = step % this.#settings.syncSteps === 0 || isLast ? await this.#bring(step) : undefined;
    return { ...this.#clock.metrics(), ...this.#rollouter.metrics?.(), ...transferMetrics(transfer) };
  }

  /** Evaluations are of the weights that are trained. */
  async resume(): Promise<void> {
    if (!this.#isOutOfDate && this.#syncs.at(-1)! < this.#trained) await this.#bring(this.#trained);
  }

  get carried(): number[] {
    const saved = this.#saved?.groups ?? [];
    return [...[...this.#groups.values(), ...saved].map(({ number }) => number), ...this.#startOver];
  }

  startOver(carried: readonly number[]): void {
    this.#saved = undefined;
    this.#startOver = [...carried];
  }

  /** Where groups are to start over, which no snapshot has, all that are under way do. */
  async save(): Promise<unknown> {
    if (this.#startOver.length > 0) return undefined;
    return encodeSnapshot(this.#saved ?? (await this.#snapshot()));
  }

  goOn(saved: unknown, vocabSize: number): void {
    this.#saved = decodeSnapshot(saved, vocabSize);
    this.#startOver = [];
  }

  async close(): Promise<void> {
    try {
      this.#saved ??= await this.#snapshot();
    } finally {
      this.#groups.clear();
      this.#clock.generates(false);
      await this.#rollouter.close();
      this.#closing.abort(new Error('The groups were given up.'));
      this.#closing = new AbortController();
      this.#changed();
      await this.#queue.clear(PARTITION);
      this.#isOutOfDate = true;
    }
  }

  /** Begins as many groups as may be generated before the next sync, and no more than the run still trains on. */
  async #begin(step: number, missing: number): Promise<void> {
    const { config, problems } = this.#options;
    const later = Math.max(0, config.trainer.totalTrainingSteps - step) * this.#settings.stepGroups;
    const count = Math.min(this.#settings.maxGroups - this.#begun, missing + later - this.#groups.size);
    if (count <= 0) return;
    const over = this.#startOver.splice(0, count);
    const numbers = [...over, ...(await problems.takeNumbers(count - over.length))];
    const drawn = await problems.get(numbers);
    this.#begun += count;
    await this.#start(
      drawn.map((problem, i) => ({ number: numbers[i], index: problems.indexOf(problem), problem, step })),
    );
  }

  async #start(groups: readonly PromptGroup[]): Promise<void> {
    this.#add(groups);
    await this.#rollouter.start(groups);
  }

  #add(groups: readonly PromptGroup[]): void {
    for (const group of groups) this.#groups.set(uidOfGroup(group), { ...group, come: new Set(), isQueued: false });
    this.#clock.generates(this.#isGenerating);
  }

  /** Puts records into the queue; in order, those of a group only once all groups before it are there. */
  async #put(records: readonly ExperienceRecord[]): Promise<void> {
    const { signal } = this.#closing;
    for (const uid of new Set(records.map(({ key }) => uidOf(key)))) {
      const group = this.#groups.get(uid);
      const own = records.filter(({ key }) => uidOf(key) === uid && group?.come.has(key) === false);
      if (!group || own.length === 0) continue;
      for (const { key } of own) group.come.add(key);
      if (this.#isComplete(group)) this.#counts.generated++;
      this.#clock.generates(this.#isGenerating);
      this.#changed();
      if (this.#settings.inOrder) await this.#until(() => signal.aborted || this.#isNext(uid));
      await this.#queue.put(PARTITION, own, { signal });
      group.isQueued = this.#isComplete(group);
      this.#changed();
    }
  }

  #isNext(uid: string): boolean {
    for (const [other, { isQueued }] of this.#groups) if (other === uid || !isQueued) return other === uid;
    return true;
  }

  #isComplete({ come }: Group): boolean {
    return come.size === this.#options.config.rollout.n;
  }

  get #isGenerating(): boolean {
    return [...this.#groups.values()].some((group) => !this.#isComplete(group));
  }

  /** The next group of the queue; rejects where one fails. */
  async #next(): Promise<TakenGroup> {
    const { n: groupSize } = this.#options.config.rollout;
    const { signal } = this.#closing;
    const taking = this.#queue.take(PARTITION, 1, { consumer: 'trainer', groupSize, signal });
    const records = await Promise.race([taking, this.#rollouter.failed]);
    const keys = records.map(({ key }) => key);
    const uid = uidOf(keys[0]);
    const group = this.#groups.get(uid)!;
    this.#groups.delete(uid);
    await this.#queue.clear(PARTITION, keys);
    const place = ({ key }: ExperienceRecord) => Number(key.slice(uid.length + 1));
    const samples = records
      .sort((a, b) => place(a) - place(b))
      .map((record) => sampleOf(record, { ...group, group: group.number }));
    const oldest = records.reduce((least, { tags }) => Math.min(least, Number(tags['version'])), Infinity);
    const seconds = (name: string) => records.reduce((total, { columns }) => total + Number(columns[name] ?? 0), 0);
    return {
      samples,
      age: this.#syncs.filter((version) => version > oldest).length,
      seconds: { tools: seconds('toolSeconds'), reward: seconds('rewardSeconds') },
    };
  }

  /**
   * Brings rollout the weights as they are after step `step`; where nothing may be cut short, what is under way finishes first. A run that is
   * given up meanwhile brings nobody anything: the step before it is whole all the same.
   */
  async #bring(step: number): Promise<WeightTransfer | undefined> {
    if (!this.#settings.partial) await this.#clock.waits(this.#until(() => !this.#isGenerating)).catch(unlessGivenUp);
    const transfer = await this.#rollouter.updateWeights(step).catch(unlessGivenUp);
    this.#isOutOfDate = false;
    if (this.#syncs.at(-1) !== step) this.#syncs = [...this.#syncs, step].slice(-KEPT_SYNCS);
    this.#begun = this.#groups.size;
    this.#clock.generates(this.#isGenerating);
    return transfer;
  }

  /** Goes on with the groups of a checkpoint, those in the queue as they are; what is neither there nor under way starts over. */
  async #restart({ groups, inFlight, queue, syncs, counts }: Snapshot): Promise<void> {
    const { problems, config } = this.#options;
    this.#saved = undefined;
    if (syncs.length > 0) this.#syncs = [...syncs]; // what was brought since then is no sync: it makes nothing older
    this.#counts = { ...counts };
    await this.#queue.restore(queue);
    const restored = await Promise.all(
      groups.map(async (group) => ({ ...group, problem: await problems.restored(group) })),
    );
    this.#add(restored);
    for (const { key } of await this.#queue.list(PARTITION)) this.#groups.get(uidOf(key))?.come.add(key);
    for (const group of this.#groups.values()) group.isQueued = group.come.size === config.rollout.n;
    this.#begun = this.#groups.size;
    const left = restored.filter((group) => !this.#groups.get(uidOfGroup(group))!.isQueued);
    const going = inFlight.filter((group) => left.some((other) => uidOfGroup(other) === uidOfGroup(group)));
    if (going.length > 0) await this.#rollouter.restore?.(going);
    const goes = new Set(this.#rollouter.restore ? going.map(uidOfGroup) : []);
    await this.#rollouter.start(left.filter((group) => !goes.has(uidOfGroup(group))));
    this.#clock.generates(this.#isGenerating);
  }

  async #snapshot(): Promise<Snapshot> {
    const inFlight = (await this.#rollouter.save?.()) ?? [];
    const queue = await this.#queue.save();
    const groups = Array.from(this.#groups.values(), ({ come: _, isQueued: __, ...group }) => group);
    return { groups, inFlight, queue, syncs: this.#syncs, counts: { ...this.#counts } };
  }

  #count(groups: readonly TakenGroup[], step: number): void {
    for (const { samples } of groups) {
      const stale = samples.filter((sample) => isStale(sample, step)).length;
      this.#counts.staleSamples += stale;
      if (stale > 0) this.#counts.stale++;
    }
  }

  /** verl's names and its counting: a sample is a group there, a trajectory one of its answers; totals of the run. */
  #countMetrics(): Metrics {
    const { generated, stale, staleSamples, dropped } = this.#counts;
    const { bytes } = this.#queue;
    return {
      'fully_async/count/total_generated_samples': generated,
      'fully_async/count/stale_samples_processed': stale,
      'fully_async/count/stale_trajectory_processed': staleSamples,
      'fully_async/count/dropped_stale_samples': dropped,
      'fully_async/count/staleness_samples': this.#begun,
      'fully_async/count/current_param_version': this.#syncs.at(-1)!,
      'fully_async/static/max_required_samples': this.#settings.maxGroups,
      'fully_async/monitor/queue_groups': [...this.#groups.values()].filter(({ isQueued }) => isQueued).length,
      ...(bytes !== undefined && { 'fully_async/monitor/queue_mib': bytes / MIB }),
    };
  }

  /** Waits for it; rejects where a group fails meanwhile. */
  async #until(isSo: () => boolean): Promise<void> {
    while (!isSo()) {
      const changed = new Promise<void>((resolve) => this.#waiting.push(resolve));
      await Promise.race([changed, this.#rollouter.failed]);
    }
  }

  #changed(): void {
    for (const go of this.#waiting.splice(0)) go();
  }
}

/** More than any age that is let through. */
const KEPT_SYNCS = 16;

const hasSignal = ({ samples }: TakenGroup, metric: 'acc' | 'score'): boolean =>
  groupsWithSignal(samples, metric).length > 0;
