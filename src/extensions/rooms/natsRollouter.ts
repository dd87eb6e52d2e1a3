/**
 * Rollout by the workers of a room: offers groups to workers, receives their samples, checks them and puts them into the experience queue.
 * A group is complete when each of its samples was accepted once, whichever workers sent them; all its samples are then put into the queue
 * together. A group whose weights are too old is offered again with newer weights, so a worker cannot influence which problems are trained
 * on.
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
 * Checks a sample of a group that was offered with weights `version`. Returns the record to train on, undefined to accept the given record
 * unchanged, or a short reason for a rejection, by which rejections are counted. `again` is true if another worker's sample with the same
 * index was already accepted. A returned record has a tag `near`: the number of tokens that are within the tolerance, but not exactly the
 * token that the random key selects.
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
  /** Number of samples per group: `rollout.n`. */
  n: number;
  check: CheckSample;
  put: PutRecords;
  /** Returns the trained weights as a safetensors file. */
  exportWeights(version: number): Promise<Uint8Array>;
  /** Maximum age of a group's weights, in weight syncs. A group with older weights is offered again with newer ones. Default: no limit. */
  maxAge?: number;
  /**
   * Share of the groups that two workers generate, so that their samples can be compared. A second worker gets such a group only if no
   * other group is free. Default: 0.
   */
  secondShare?: number;
  /**
   * Maximum number of samples that are being checked or wait for space in the experience queue. If `put` takes groups in order, it must be
   * at least the number of groups in flight; otherwise later groups could block the first one. Default: 64.
   */
  handledAtOnce?: number;
  /** Rejects if the step that waits for samples was cancelled. */
  cancelled?: Promise<never>;
  /** Called when a group has ended or is offered again, so that what is known about its samples can be forgotten. */
  onEnd?(uid: string): void;
  /** Returns further metrics of a step. */
  metrics?(): Metrics;
}

type Begun = Pick<PromptGroup, 'step' | 'number'>;
const isAfter = (a: Begun, b: Begun): boolean => a.step > b.step || (a.step === b.step && a.number > b.number);

/** A sample that a worker sent, with its index in the group and the weights of its ticket. */
interface Received {
  index: number;
  weights: Weights;
  record: ExperienceRecord;
}

interface Outstanding {
  group: PromptGroup;
  /** Weights that the group's prompt names. */
  weights: Weights;
  /** Indices of samples that were accepted or are being checked. */
  samples: Set<number>;
  accepted: Map<number, ExperienceRecord>;
  /** Indices of samples received from each worker. */
  received: Map<string, Set<number>>;
  isTwice: boolean;
  /** Number of received samples of the group that are being checked or wait for their turn. */
  handled: number;
  /** Samples with the same index are checked one after another, so that a second worker's sample meets the accepted one. */
  turns: Map<number, Promise<void>>;
  isPut: boolean;
}

/** A sample of a group that this controller has not started yet is redelivered later. It is dropped after this many deliveries. */
const PUT_OFF = 60;
const PUT_OFF_MS = 2000;
/** Rollouter whose groups the workers of a room generate. */
export class NatsRollouter implements Rollouter {
  readonly restartsStale = true;
  readonly #host: RoomHost;
  readonly #options: NatsRollouterOptions;
  readonly #groups = new Map<string, Outstanding>();
  /** Step and number of the newest group that was started. An earlier group that is not in `#groups` has ended. */
  #newest: Begun = { step: -1, number: -1 };
  readonly #handled = new Map<JsMsg, Promise<void>>();
  /** Versions of the weights whose groups are not too old to be trained on, newest first. */
  #versions: number[] = [];
  /**
   * Number of samples that two workers generated: with the same tokens (`same`), with different tokens where a token near the tolerance
   * explains the difference (`near`), and with an unexplained difference (`differ`).
   */
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

  /** Resolves with `work`, which waits for the server. Rejects if the step that waits for samples is cancelled. */
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

  /** Stops receiving samples. They stay on the server for a controller that resumes the run. */
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
        // The server redelivers a message that is not yet acknowledged. Ignore it while the first delivery is handled: an acknowledgement
        // would delete the sample from the server.
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
    const uid = uidOf(sample.record.key);
    const outstanding = this.#groups.get(uid);
    if (!outstanding && !this.#isOver(uid) && message.info.deliveryCount < PUT_OFF) return message.nak(PUT_OFF_MS);
    if (!outstanding || !isSameWeights(sample.weights, outstanding.weights)) {
      counts.duplicates++;
      return message.ack();
    }
    outstanding.handled++;
    const before = outstanding.turns.get(sample.index) ?? Promise.resolve();
    const turn = before.then(() => this.#accept(outstanding, sample, worker));
    outstanding.turns.set(sample.index, turn);
    await turn;
    outstanding.handled--;
    await this.#putComplete(uid, outstanding);
    message.ack();
  }

  /** Checks a sample and accepts it, or compares it with the accepted sample of another worker. */
  async #accept(outstanding: Outstanding, { index, record }: Received, worker: string): Promise<void> {
    const { group, samples, accepted, received, weights, isTwice } = outstanding;
    const uid = uidOfGroup(group);
    const counts = this.#host.countsOf(worker);
    const ofWorker = received.get(worker) ?? new Set();
    const first = accepted.get(index);
    const isSecond = isTwice && first !== undefined && first.tags['worker'] !== worker && !ofWorker.has(index);
    received.set(worker, ofWorker.add(index));
    if (counts.leftOut || this.#groups.get(uid) !== outstanding || (samples.has(index) && !isSecond)) {
      counts.duplicates++;
      return;
    }
    this.#want(uid, samples.add(index));
    const checked = await this.#options.check(record, worker, group, weights.version, isSecond);
    if (this.#groups.get(uid) !== outstanding) return; // ended during the check, or offered again
    if (typeof checked === 'string') {
      if (!isSecond) samples.delete(index);
      counts.rejected[checked] = (counts.rejected[checked] ?? 0) + 1;
      this.#host.leaveOut(worker, `a sample of it was rejected: ${checked}`);
      this.#want(uid, samples);
    } else if (!isSecond) accepted.set(index, checked ?? record);
    else if (!this.#agree(first, checked ?? record)) await this.#offer(group);
  }

  /**
   * Compares the samples of two workers. Returns false, so that both are rejected, if their tokens differ and neither sample has near
   * tokens (tokens that differ from the verifier's within its tolerance), which could explain the difference.
   */
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

  /**
   * Puts the samples of a complete group into the experience queue, unless a second worker is still generating the group: its samples are
   * compared first.
   */
  async #putComplete(uid: string, outstanding: Outstanding): Promise<void> {
    const { accepted, received, isTwice, handled, isPut } = outstanding;
    const { n } = this.#options;
    if (isPut || handled > 0 || accepted.size < n || this.#groups.get(uid) !== outstanding) return;
    const isAwaited = (worker: string) => (received.get(worker)?.size ?? 0) < n;
    if (isTwice && this.#host.leases.workersOf(uid, this.#host.now()).some(isAwaited)) return;
    outstanding.isPut = true;
    await this.#options.put([...accepted.values()]);
    for (const { tags } of accepted.values()) this.#host.countsOf(String(tags['worker'])).accepted++;
    if (this.#groups.get(uid) === outstanding) this.#end([uid]); // the trainer can have started it again
  }

  /** Reads a sample and checks its signature and ticket. Counts a message that is refused, and returns undefined. */
  async #readSample(message: JsMsg, worker: string): Promise<Received | undefined> {
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

  /** Offers a group with the newest weights. Samples of an earlier offer are dropped. */
  async #offer(group: PromptGroup): Promise<void> {
    const { number, index, problem, step } = group;
    const { tickets } = this.#host;
    const uid = uidOfGroup(group);
    const isTwice = (await tickets.secretOf(uid)) < (this.#options.secondShare ?? 0);
    const fresh = {
      samples: new Set<number>(),
      accepted: new Map(),
      received: new Map(),
      handled: 0,
      turns: new Map(),
    };
    const weights = this.#host.published;
    this.#options.onEnd?.(uid);
    this.#groups.set(uid, { group, weights, isTwice, isPut: false, ...fresh });
    const ticket = await tickets.give(uid, weights);
    const which = { number, step, weights, ...(index !== undefined && { index }) };
    this.#host.offer(uid, write('prompt', { uid, ticket, n: this.#options.n, ...which, problem }), isTwice ? 2 : 1);
  }

  /** True if the group has ended, in this controller or in an earlier one of the same run. */
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

/** State of the rollouter between its start and `close`: the signal that ends its work, and the promise that its first error rejects. */
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
