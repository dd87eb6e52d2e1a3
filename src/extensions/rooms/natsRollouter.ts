/**
 * Rollout by the workers of a room. Groups are offered to workers; samples are received, checked and put into the experience queue. A group
 * is done when each of its samples was accepted once, whichever worker sent it and however often. Then all its samples are put at once. A
 * group that gets too old is offered again by newer weights, so no worker decides which problems are trained on.
 */

import type { JsMsg } from '@nats-io/jetstream';
import type { Metrics } from '../../grpo/metrics.ts';
import {
  type PromptGroup,
  type PutRecords,
  type Rollouter,
  uidOfGroup,
  type WeightTransfer,
} from '../../grpo/pipeline/types.ts';
import { type ExperienceRecord, uidOf } from '../../grpo/pipeline/record.ts';
import { sameIds } from '../../grpo/update/batch.ts';
import { pause, pull, untilDone } from './connect.ts';
import { MessageError } from './frame.ts';
import { isSameWeights, readSample, type Weights, write } from './messages.ts';
import { SAMPLES, workerOf } from './names.ts';
import type { RoomHost } from './roomHost.ts';
import { signedBy } from './tickets.ts';

/**
 * Checks a sample of a group that was offered with the weights of `version`. Returns the reason for a rejection in a few words, under which
 * it is counted, or the record to train on. Undefined accepts the record unchanged. `again` = another worker's sample was accepted before.
 * The tag `near` of a record counts its near tokens: within the tolerance, but not exactly the draw of their key.
 */
export type CheckSample = (
  record: ExperienceRecord,
  worker: string,
  group: PromptGroup,
  version: number,
  again: boolean,
) => Promise<Checked> | Checked;
type Checked = string | ExperienceRecord | undefined;

export interface NatsRollouterOptions {
  /** Number of samples of a group: `rollout.n`. */
  n: number;
  check: CheckSample;
  put: PutRecords;
  /** Returns the trained weights as a file for workers. */
  exportWeights(version: number): Promise<Uint8Array>;
  /** Largest age of a sample's weights, in syncs. An older group is offered again by newer weights. Default: no limit. */
  maxAge?: number;
  /** Share of the groups that a second worker generates too, if one has nothing else to do. Default: 0. */
  secondShare?: number;
  /**
   * Number of samples that are checked or wait for space concurrently. If `put` takes groups in order, this must be the number of groups
   * in flight at least. Otherwise the groups that wait could block the first one. Default: 64.
   */
  handledAtOnce?: number;
  /** Rejects if the step that waits for samples is cancelled. */
  cancelled?: Promise<never>;
  /** Called when the group has ended: none of its samples is checked any longer, or all are checked again. */
  onEnd?(uid: string): void;
  /** Returns additional metrics of a step. */
  metrics?(): Metrics;
}

type Begun = Pick<PromptGroup, 'step' | 'number'>;
const isAfter = (a: Begun, b: Begun): boolean => a.step > b.step || (a.step === b.step && a.number > b.number);

interface Outstanding {
  group: PromptGroup;
  /** Weights in the group's prompt. */
  weights: Weights;
  /** Samples that were accepted or are being checked. */
  samples: Set<number>;
  accepted: Map<number, ExperienceRecord>;
  /** Samples received from each worker. */
  received: Map<string, Set<number>>;
  isTwice: boolean;
  /** Number of samples that are being checked. */
  checked: number;
  isPut: boolean;
}

/** Number of times that samples of a group that was not started are delayed before they are dropped. */
const PUT_OFF = 60;
const PUT_OFF_MS = 2000;
/** Rollouter that offers groups to the workers of a room and receives their samples. */
export class NatsRollouter implements Rollouter {
  readonly restartsStale = true;
  readonly #host: RoomHost;
  readonly #options: NatsRollouterOptions;
  readonly #groups = new Map<string, Outstanding>();
  /** The newest started group, by step and number. Earlier groups that are not in flight have ended. */
  #newest: Begun = { step: -1, number: -1 };
  readonly #handled = new Map<JsMsg, Promise<void>>();
  /** Weight versions whose groups can still be trained on, newest first. */
  #versions: number[] = [];
  /** Samples that two workers generated: the same tokens, different ones with a near token, and different ones without. */
  readonly #second = { same: 0, near: 0, differ: 0 };
  #life = new Life();

  constructor(host: RoomHost, options: NatsRollouterOptions) {
    this.#host = host;
    this.#options = options;
  }

  get failed(): Promise<never> {
    const { cancelled } = this.#options;
    return cancelled ? Promise.race([cancelled, this.#life.failed]) : this.#life.failed;
  }

  async start(groups: readonly PromptGroup[]): Promise<void> {
    for (const group of groups) {
      if (isAfter(group, this.#newest)) this.#newest = group;
      await this.#offer(group);
    }
    this.#life.running ??= this.#run(this.#life);
  }

  async updateWeights(version: number): Promise<WeightTransfer> {
    const started = performance.now();
    const bytes = await this.#options.exportWeights(version);
    await this.#unlessCancelled(untilDone(() => this.#host.publishWeights(version, bytes), this.#life.ending.signal));
    const { maxAge = Infinity } = this.#options;
    const before = this.#versions.filter((other) => other !== version);
    this.#versions = [version, ...before].slice(0, Math.min(maxAge, before.length) + 1);
    for (const { group, weights, isPut } of [...this.#groups.values()])
      if (!isPut && !this.#versions.includes(weights.version)) await this.#offer(group);
    return { version, bytes: bytes.length, seconds: (performance.now() - started) / 1000, overlapSeconds: 0 };
  }

  /** Waits for the server, but rejects when the step that waits for samples is cancelled. */
  #unlessCancelled<T>(work: Promise<T>): Promise<T> {
    const { cancelled } = this.#options;
    if (!cancelled) return work;
    work.catch(() => {}); // it rejects when this controller ends, and is not awaited then
    return Promise.race([work, cancelled]);
  }

  metrics(): Metrics {
    const workers = [...this.#host.workers.values()];
    const rejected: Metrics = {};
    for (const [why, count] of workers.flatMap((counts) => Object.entries(counts.rejected))) {
      const name = `room/rejected/${why.replace(/\W/g, '_')}`;
      rejected[name] = (rejected[name] ?? 0) + count;
    }
    const here = workers.filter(({ adapter, leftOut }) => adapter !== '' && !leftOut);
    const { same, near, differ } = this.#second;
    const second = { 'room/second/same': same, 'room/second/near': near, 'room/second/differ': differ };
    return {
      'room/workers': here.length,
      ...rejected,
      ...(this.#options.secondShare && second),
      ...this.#options.metrics?.(),
    };
  }

  async close(): Promise<void> {
    await this.detach();
    this.#life = new Life();
    this.#end([...this.#groups.keys()]);
  }

  /** Stops this controller. Samples stay on the server for a controller that resumes. */
  async detach(): Promise<void> {
    const { ending, running } = this.#life;
    ending.abort(new Error('The room was closed.'));
    await running;
    await Promise.allSettled(this.#handled.values());
  }

  async #run({ ending: { signal }, fail }: Life): Promise<void> {
    const { ackWaitMs } = this.#host;
    const pinging = setInterval(() => {
      if (!this.#host.connection.isClosed()) for (const message of this.#handled.keys()) message.working();
    }, ackWaitMs / 3);
    const forEver = async (work: () => Promise<void>) => {
      while (!signal.aborted) await untilDone(work, signal);
    };
    const sweeping = forEver(async () => {
      await pause(Math.max(500, ackWaitMs / 2), signal);
      for (const [uid, outstanding] of this.#groups) void this.#putComplete(uid, outstanding).catch(fail);
      await this.#host.consumers.check();
    });
    await Promise.all([forEver(() => this.#receive(signal)).catch(fail), sweeping.catch(fail)]);
    clearInterval(pinging);
  }

  async #receive(signal: AbortSignal): Promise<void> {
    const consumer = await this.#host.js.consumers.get(SAMPLES.stream, SAMPLES.consumer);
    while (!signal.aborted) {
      const room = (this.#options.handledAtOnce ?? 64) - this.#handled.size;
      if (room <= 0) {
        await Promise.race(this.#handled.values());
        continue;
      }
      await pull(consumer, room, signal, (message) => {
        // A sample that waits for space in the queue can be delivered again. An acknowledgement would remove it from the server.
        if ([...this.#handled.keys()].some(({ seq }) => seq === message.seq)) return;
        const handling = this.#handle(message)
          .catch(this.#life.fail)
          .finally(() => this.#handled.delete(message));
        this.#handled.set(message, handling);
      });
    }
  }

  async #handle(message: JsMsg): Promise<void> {
    const worker = workerOf(message.subject);
    const counts = this.#host.countsOf(worker);
    const sample = await this.#readSample(message, worker);
    if (!sample) return message.ack();
    const { index, record } = sample;
    const uid = uidOf(record.key);
    const outstanding = this.#groups.get(uid);
    if (!outstanding && !this.#isOver(uid) && message.info.deliveryCount < PUT_OFF) return message.nak(PUT_OFF_MS);
    if (!outstanding || counts.leftOut || !isSameWeights(sample.weights, outstanding.weights)) {
      counts.duplicates++;
      return message.ack();
    }
    const { group, samples, accepted, received, weights, isTwice } = outstanding;
    const ofWorker = received.get(worker) ?? new Set();
    const first = accepted.get(index);
    const isSecond = isTwice && first !== undefined && first.tags['worker'] !== worker && !ofWorker.has(index);
    received.set(worker, ofWorker.add(index));
    if (samples.has(index) && !isSecond) {
      counts.duplicates++;
      await this.#putComplete(uid, outstanding);
      return message.ack();
    }
    this.#want(uid, samples.add(index));
    outstanding.checked++;
    const checked = await this.#options.check(record, worker, group, weights.version, isSecond);
    outstanding.checked--;
    if (this.#groups.get(uid) !== outstanding) return message.ack(); // ended during the check, or offered again
    if (typeof checked === 'string') {
      if (!isSecond) samples.delete(index);
      counts.rejected[checked] = (counts.rejected[checked] ?? 0) + 1;
      this.#host.leaveOut(worker, `a sample of it was rejected: ${checked}`);
      this.#want(uid, samples);
    } else if (!isSecond) accepted.set(index, checked ?? record);
    else if (!this.#agree(first, checked ?? record)) await this.#offer(group);
    await this.#putComplete(uid, outstanding);
    message.ack();
  }

  /** Compares the samples of two workers. Returns false, which rejects both, if no near token explains a difference. */
  #agree(first: ExperienceRecord, second: ExperienceRecord): boolean {
    const [a, b] = [first, second].map(({ columns }) => columns['response']);
    const isSame = a instanceof Uint32Array && b instanceof Uint32Array && sameIds(a, b);
    const isNear = [first, second].some(({ tags }) => Number(tags['near']) > 0);
    this.#second[isSame ? 'same' : isNear ? 'near' : 'differ']++;
    if (isSame || isNear) return true;
    for (const { tags } of [first, second]) {
      const { rejected } = this.#host.countsOf(String(tags['worker']));
      rejected['disagreement'] = (rejected['disagreement'] ?? 0) + 1;
    }
    return false;
  }

  #want(uid: string, samples: ReadonlySet<number>): void {
    this.#host.want(uid, samples.size < this.#options.n);
  }

  /** Sends a complete group to the trainer, unless a second worker still generates it: the two are compared first. */
  async #putComplete(uid: string, outstanding: Outstanding): Promise<void> {
    const { accepted, received, isTwice, checked, isPut } = outstanding;
    const { n } = this.#options;
    if (isPut || checked > 0 || accepted.size < n || this.#groups.get(uid) !== outstanding) return;
    const isAwaited = (worker: string) => (received.get(worker)?.size ?? 0) < n;
    if (isTwice && this.#host.leases.workersOf(uid, this.#host.now()).some(isAwaited)) return;
    outstanding.isPut = true;
    await this.#options.put([...accepted.values()]);
    for (const { tags } of accepted.values()) this.#host.countsOf(String(tags['worker'])).accepted++;
    if (this.#groups.get(uid) === outstanding) this.#end([uid]); // the trainer can have started it again
  }

  /** Returns the sample; undefined if it is refused, which is counted. */
  async #readSample(message: JsMsg, worker: string) {
    try {
      const { ticket, record } = readSample(await signedBy(worker, message.data));
      const uid = uidOf(record.key);
      const index = Number(record.key.slice(uid.length + 1));
      const weights = await this.#host.tickets.weightsOf(uid, ticket);
      if (!weights) throw new MessageError('ticket', `The sample "${record.key}" belongs to no open group.`);
      if (!Number.isInteger(index) || index < 0 || index >= this.#options.n || record.key !== `${uid}_${index}`)
        throw new MessageError('malformed', `The key "${record.key}" does not name a sample.`);
      return { index, weights, record: { ...record, tags: { ...record.tags, worker } } };
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      this.#host.countsOf(worker).refused[error.refusal]++;
      return undefined;
    }
  }

  /** Offers a group with the newest weights. Samples by other weights are dropped. */
  async #offer(group: PromptGroup): Promise<void> {
    const { number, index, problem, step } = group;
    const { tickets } = this.#host;
    const uid = uidOfGroup(group);
    const isTwice = (await tickets.secretOf(uid)) < (this.#options.secondShare ?? 0);
    const fresh = { samples: new Set<number>(), accepted: new Map(), received: new Map(), checked: 0, isPut: false };
    const weights = this.#host.published;
    this.#options.onEnd?.(uid);
    this.#groups.set(uid, { group, weights, isTwice, ...fresh });
    const ticket = await tickets.give(uid, weights);
    const which = { number, step, weights, ...(index !== undefined && { index }) };
    this.#host.offer(uid, write('prompt', { uid, ticket, n: this.#options.n, ...which, problem }), isTwice ? 2 : 1);
  }

  /** True if the group has ended, also if an earlier controller ended it. */
  #isOver(uid: string): boolean {
    const [step, number] = uid.split('.').map(Number);
    return !this.#groups.has(uid) && !isAfter({ step, number }, this.#newest);
  }

  #end(uids: readonly string[]): void {
    for (const uid of uids) {
      this.#options.onEnd?.(uid);
      this.#groups.delete(uid);
    }
    this.#host.withdraw(uids);
  }
}

/** State of the rollouter from its start to `close`: the signal that ends its work, and its first failure. */
class Life {
  readonly ending = new AbortController();
  readonly failed: Promise<never>;
  readonly fail: (error: unknown) => void;
  running: Promise<void> | undefined;

  constructor() {
    let reject = (_: unknown): void => {};
    this.failed = new Promise<never>((_, no) => (reject = no));
    this.failed.catch(() => {}); // it can reject before it is awaited
    this.fail = (error) => void (this.ending.signal.aborted || reject(error));
  }
}
