/**
 * A simulated rollouter, with the rules of src/extensions/pipelines/asyncGroups.ts. It starts groups as far ahead of the trainer as the
 * pipeline allows, assigns them to devices, and keeps the finished ones until the trainer takes them.
 */

import type { Schedule } from '../../grpo/pipeline/settings.ts';
import { all, type Clock, type Process, Signal } from './clock.ts';
import type { RolloutDevice } from './rolloutDevice.ts';
import type { SampleWork, Workload } from './workload.ts';

/** A room: its workers generate for the trainer, and each can have a limited number of groups. */
export interface Room {
  groupsAtOnce: number;
  /** True if the trainer verifies samples: it repeats the tools of every sample and checks the tokens by a forward pass. */
  verifies: boolean;
}

/** A group: the samples of one prompt. */
export interface Group {
  samples: readonly SampleWork[];
  /** Seconds to train on the group's samples with one device. */
  trainSeconds: number;
  /** Version of the weights when the group started. */
  version: number;
}

/** Share of the forward pass in the training time. The backward pass takes about twice as long. */
const FORWARD_SHARE = 1 / 3;

/** Simulates the rollout side of a run, from which the trainer takes groups. */
export class Rollouter {
  /** Number of groups that were dropped because they were too old. */
  dropped = 0;
  /** Number of weight syncs so far. */
  version = 0;
  /** Seconds in which at least one group was in flight. */
  #busySeconds = 0;
  #busySince = 0;
  #underWay = 0;
  readonly #clock: Clock;
  readonly #devices: readonly RolloutDevice[];
  readonly #promptTokens: number;
  readonly #settings: Schedule;
  readonly #room: Room | undefined;
  readonly #stream: Iterator<Omit<Group, 'version'>, never>;
  /** Number of groups that the whole run trains on. */
  readonly #total: number;
  #begun = 0;
  #begunSinceSync = 0;
  /** Groups that were started and not yet taken by the trainer, in the order of their start. */
  readonly #groups = new Set<Group>();
  /** Groups in `#groups` that are finished, in the order in which they finished. */
  readonly #done: Group[] = [];
  #ended = new Signal();
  /** Groups that wait for a worker of the room. `#held` has the number of groups that each worker is generating. */
  readonly #queue: { group: Group; ended: Signal }[] = [];
  readonly #held = new Map<RolloutDevice, number>();
  /** Simulated time at which the trainer will have finished all verifications that were requested so far. */
  #checkedAt = 0;

  constructor(
    clock: Clock,
    work: Workload,
    {
      devices,
      pipeline,
      total,
      room,
    }: { devices: RolloutDevice[]; pipeline: Schedule; total: number; room: Room | undefined },
  ) {
    [this.#clock, this.#devices, this.#settings, this.#total, this.#room] = [clock, devices, pipeline, total, room];
    this.#promptTokens = work.promptTokens;
    this.#stream = groupsOf(work);
  }

  /** Waits for the next group to train on, and returns it. */
  *take(): Generator<number | Signal, Group, void> {
    for (;;) {
      this.#begin();
      const [first] = this.#settings.inOrder ? this.#groups : this.#done;
      const place = this.#done.indexOf(first);
      if (place < 0) {
        yield this.#ended;
        continue;
      }
      this.#done.splice(place, 1);
      this.#groups.delete(first);
      if (this.version - first.version <= this.#settings.maxAge) return first;
      this.dropped++;
      this.#begunSinceSync--;
    }
  }

  /** Waits until no group is in flight. */
  *finish(): Process {
    while (this.#underWay > 0) yield this.#ended;
  }

  /**
   * Called after a weight sync. Groups that are finished or in flight count towards the number that may be started before the next sync.
   */
  synced(): void {
    this.version++;
    this.#begunSinceSync = this.#groups.size;
    for (const device of this.#devices) device.forgetCaches();
  }

  /** Seconds, up to the current time, in which at least one group was in flight. */
  get busySeconds(): number {
    return this.#busySeconds + (this.#underWay > 0 ? this.#clock.now - this.#busySince : 0);
  }

  /** Starts as many groups as the pipeline allows before the next sync, but no more than the run trains on. */
  #begin(): void {
    while (this.#begunSinceSync < this.#settings.maxGroups && this.#begun < this.#total + this.dropped) {
      const group: Group = { ...this.#stream.next().value, version: this.version };
      this.#begun++;
      this.#begunSinceSync++;
      this.#groups.add(group);
      if (this.#underWay++ === 0) this.#busySince = this.#clock.now;
      this.#clock.start(this.#generate(group)).whenHappened(() => this.#end(group));
    }
  }

  #end(group: Group): void {
    if (--this.#underWay === 0) this.#busySeconds += this.#clock.now - this.#busySince;
    this.#done.push(group);
    const ended = this.#ended;
    this.#ended = new Signal();
    ended.happen();
  }

  *#generate(group: Group): Process {
    if (!this.#room) {
      yield all(
        group.samples.map((sample) =>
          this.#run(
            sample,
            group,
            leastBy(this.#devices, ({ load }) => load),
          ),
        ),
      );
      return;
    }
    const ended = new Signal();
    this.#queue.push({ group, ended });
    this.#assign(this.#room);
    yield ended;
    if (this.#room.verifies) yield all(group.samples.map((sample) => this.#clock.start(this.#verify(sample, group))));
  }

  /** Assigns waiting groups to workers that are below their limit. */
  #assign(room: Room): void {
    const held = (worker: RolloutDevice) => this.#held.get(worker) ?? 0;
    while (this.#queue.length > 0) {
      const worker = leastBy(this.#devices, held);
      if (held(worker) >= room.groupsAtOnce) return;
      const { group, ended } = this.#queue.shift()!;
      this.#held.set(worker, held(worker) + 1);
      all(group.samples.map((sample) => this.#run(sample, group, worker))).whenHappened(() => {
        this.#held.set(worker, held(worker) - 1);
        ended.happen();
        this.#assign(room);
      });
    }
  }

  #run(sample: SampleWork, { samples }: Group, device: RolloutDevice): Signal {
    return this.#clock.start(device.run(sample, this.#promptTokens / samples.length));
  }

  /**
   * Simulates the verification of a sample: its tools run one after the other, then the trainer checks the tokens, one sample at a time.
   */
  *#verify({ turns }: SampleWork, { samples, trainSeconds }: Group): Process {
    yield turns.reduce((sum, { toolSeconds }) => sum + toolSeconds, 0);
    this.#checkedAt = Math.max(this.#checkedAt, this.#clock.now) + (FORWARD_SHARE * trainSeconds) / samples.length;
    yield this.#checkedAt - this.#clock.now;
  }
}

/** Yields the groups of the recorded steps, from the first step again after the last. Each group is a separate copy. */
function* groupsOf({ steps, trainSeconds }: Workload): Generator<Omit<Group, 'version'>, never> {
  for (let step = 0; ; step++) {
    const groups = new Map<number, SampleWork[]>();
    for (const sample of steps[step % steps.length]) {
      const group = groups.get(sample.group);
      if (group) group.push({ ...sample });
      else groups.set(sample.group, [{ ...sample }]);
    }
    const seconds = trainSeconds[step % trainSeconds.length] / groups.size;
    for (const samples of groups.values()) yield { samples, trainSeconds: seconds };
  }
}

const leastBy = <T>(items: readonly T[], of: (item: T) => number): T =>
  items.reduce((least, item) => (of(item) < of(least) ? item : least));
