/**
 * The controller's side of a room, except for samples (natsRollouter.ts): creates streams and buckets, admits and excludes workers, gives
 * them groups, announces new weights, and counts what each worker has done.
 */

import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { Msg, NatsConnection } from '@nats-io/nats-core';
import { pause, untilDone } from './connect.ts';
import { Consumers } from './consumers.ts';
import { MessageError, type Refusal } from './frame.ts';
import { Leases } from './leases.ts';
import { type Notice, read, type Weights, write } from './messages.ts';
import { JOIN, NOTICES, SAMPLES, STATE, STATE_BUCKET, STATUSES, TAKES, workerOf } from './names.ts';
import { textSignedBy, Tickets } from './tickets.ts';
import { WeightStore } from './weights.ts';

export interface RoomOptions {
  /** Config of the run, as plain JSON. Workers generate by it. */
  config: Record<string, unknown>;
  /** Maximum number of workers in the room. Default: 64. */
  maxWorkers?: number;
  /** Milliseconds after which the groups of a silent worker can be given to others. */
  ackWaitMs?: number;
  /** Milliseconds after which a group can be given to another worker even if its worker is not silent. Default: ten minutes. */
  deadlineMs?: number;
  /** Maximum number of groups that one worker can have at the same time. Default: 16. */
  maxHeld?: number;
  /** True if samples are verified. Workers must then generate each group by the weights that its prompt names. */
  verifies?: boolean;
  /** Maximum number of bytes of the samples that are stored on the server and not yet received. Workers wait while it is reached. */
  maxSampleBytes?: number;
  /** Number of weight versions that the server stores. Default: 2. */
  keptVersions?: number;
  /** True to continue with the samples and tickets of an earlier controller of this run. Default: they are dropped. */
  resume?: boolean;
  /** Stores the files from which new workers create their engine. Called before the first worker is admitted. */
  prepare?: (weights: WeightStore) => Promise<void>;
  /**
   * Returns the current time in milliseconds. Leases of groups and the silence of workers are measured by it. Default: the system's clock.
   */
  now?: () => number;
  /** Called with a sentence to print when a worker joins, leaves or is excluded. */
  say?: (line: string) => void;
}

/**
 * Value of `heardAt` for a worker that has left. It marks messages that the worker sent before but that are handled afterwards, because
 * signatures are checked in parallel.
 */
const LEFT = -Infinity;

/** A worker and the counts of its samples by result. */
export interface WorkerCounts {
  name: string;
  adapter: string;
  /** Number of samples that were accepted for training. */
  accepted: number;
  /** Number of samples that failed the verification, by reason. */
  rejected: Record<string, number>;
  /** Number of messages that were invalid or had a wrong signature or ticket, by reason. */
  refused: Record<Refusal, number>;
  /** Number of samples that were received twice or no longer needed. */
  duplicates: number;
  tokensPerS: number;
  /** Version of the weights that the worker has loaded. */
  version: number;
  leftOut: boolean;
  /** Time (by `now`) at which the worker was admitted or last reported; LEFT after it has left. */
  heardAt: number;
}

const NANOSECONDS = 1e6;
/** A worker that has not reported for this many milliseconds counts as silent. Workers report every two seconds. */
const SILENT_MS = 10_000;
/** Maximum milliseconds for creating streams and buckets, because a server may be restarting. */
const OPEN_MS = 60_000;
/** Maximum milliseconds for sending the end of the run to the workers. If the server is unreachable, workers notice that themselves. */
const TELL_MS = 5000;
/** Maximum number of workers whose counts are stored. */
const KEPT_WORKERS = 10_000;
/** A request for a group is answered after at most this many milliseconds, if necessary without a group. */
const WAIT_MS = 5000;

/** A worker's request for a group that is not answered yet. */
interface Waiting {
  worker: string;
  message: Msg;
  since: number;
}

/** The controller's side of a room: workers, messages to them, weights and counts. */
export class RoomHost {
  readonly connection: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly consumers: Consumers;
  readonly weights: WeightStore;
  readonly tickets: Tickets;
  readonly ackWaitMs: number;
  readonly leases: Leases;
  readonly now: () => number;
  readonly workers = new Map<string, WorkerCounts>();
  /** The newest weights that were published. */
  published: Weights = { version: 0, digest: '' };
  readonly #state: KV;
  readonly #options: RoomOptions;
  #waiting: Waiting[] = [];

  private constructor(
    parts: Pick<RoomHost, 'connection' | 'js' | 'jsm' | 'consumers' | 'weights' | 'tickets' | 'ackWaitMs'>,
    state: KV,
    options: RoomOptions,
  ) {
    this.connection = parts.connection;
    this.js = parts.js;
    this.jsm = parts.jsm;
    this.consumers = parts.consumers;
    this.weights = parts.weights;
    this.tickets = parts.tickets;
    this.ackWaitMs = parts.ackWaitMs;
    this.#state = state;
    this.#options = options;
    const { deadlineMs = 600_000, maxHeld = 16, now = () => Date.now() } = options;
    this.now = now;
    this.leases = new Leases({ silentMs: this.ackWaitMs, deadlineMs, maxHeld });
    this.connection.subscribe(JOIN, { callback: (error, message) => void (error ?? this.#join(message)) });
    this.connection.subscribe(STATUSES, { callback: (error, message) => void (error ?? this.#status(message)) });
    this.connection.subscribe(TAKES, { callback: (error, message) => void (error ?? this.#take(message)) });
    const looking = setInterval(() => this.#handOut(), Math.min(1000, this.ackWaitMs / 3));
    void this.connection.closed().then(() => clearInterval(looking));
  }

  /**
   * Creates or resumes the room on a server.
   * @param connection connection of the controller's user, which has all rights
   */
  static open(connection: NatsConnection, options: RoomOptions): Promise<RoomHost> {
    return untilDone(() => RoomHost.#open(connection, options), AbortSignal.timeout(OPEN_MS));
  }

  static async #open(connection: NatsConnection, options: RoomOptions): Promise<RoomHost> {
    const { ackWaitMs = 30_000, maxSampleBytes = 256 * 2 ** 20, keptVersions = 2 } = options;
    const { resume = false, verifies = false } = options;
    const { DiscardPolicy, jetstream, RetentionPolicy, StorageType } = await import('@nats-io/jetstream');
    const { Kvm } = await import('@nats-io/kv');
    const js = jetstream(connection);
    const jsm = await js.jetstreamManager();
    await ensureStream(jsm, {
      ...{ retention: RetentionPolicy.Workqueue, discard: DiscardPolicy.New, storage: StorageType.File },
      ...{ name: SAMPLES.stream, subjects: [SAMPLES.subjects], max_bytes: maxSampleBytes },
      duplicate_window: 10 * 60_000 * NANOSECONDS,
    });
    if (!resume) await jsm.streams.purge(SAMPLES.stream);
    const state = await new Kvm(js).create(STATE_BUCKET, { storage: StorageType.File });
    const known = resume ? (await state.get(STATE.secret))?.value : undefined;
    const secret = Uint8Array.from(known ?? crypto.getRandomValues(new Uint8Array(32)));
    await state.put(STATE.secret, secret);
    await state.put(STATE.room, write('room', { config: options.config, ackWaitMs, verifies }));
    const tickets = await Tickets.of(secret);
    const weights = await WeightStore.open(connection, keptVersions);
    await options.prepare?.(weights);
    const consumers = new Consumers(connection, jsm, state, ackWaitMs);
    await consumers.check();
    return new RoomHost({ connection, js, jsm, consumers, weights, tickets, ackWaitMs }, state, options);
  }

  /** Stores weights on the server and announces them to the workers. */
  async publishWeights(version: number, bytes: Uint8Array): Promise<void> {
    const published = { version, digest: await this.weights.putVersion(version, bytes) };
    await this.#state.put(STATE.version, write('weights', published));
    this.published = published;
    this.notify({ weights: published });
  }

  notify(notice: Notice): void {
    if (!this.connection.isClosed()) this.connection.publish(NOTICES, write('notice', notice));
  }

  /** Offers a group to the workers. If it was offered before, replaces its prompt. */
  offer(uid: string, prompt: string, copies: number): void {
    this.leases.offer(uid, prompt, copies);
    this.#handOut();
  }

  /** Sets whether samples of the group are missing. */
  want(uid: string, isWanted: boolean): void {
    this.leases.want(uid, isWanted);
    if (isWanted) this.#handOut();
  }

  /** Removes groups, and tells the workers that are still generating them to stop. */
  withdraw(uids: readonly string[]): void {
    const aborted = uids.filter((uid) => this.leases.end(uid, this.now()));
    if (aborted.length > 0) this.notify({ aborted });
  }

  /** Returns the counts of a worker; all are zero for a new worker. */
  countsOf(worker: string): WorkerCounts {
    let counts = this.workers.get(worker);
    if (!counts) {
      const refused = { malformed: 0, version: 0, signature: 0, ticket: 0 };
      const fresh = { name: worker.slice(0, 8), adapter: '', accepted: 0, rejected: {}, refused, duplicates: 0 };
      counts = { ...fresh, tokensPerS: 0, version: 0, leftOut: false, heardAt: this.now() };
      if (this.workers.size >= KEPT_WORKERS) this.workers.delete(this.workers.keys().next().value!);
      this.workers.set(worker, counts);
    }
    return counts;
  }

  /** Returns the number of workers that have reported recently, have not left and are not excluded, except the worker `except`. */
  present(except?: string): number {
    return this.#present().filter((worker) => worker !== except).length;
  }

  #present(): string[] {
    const silentMs = Math.max(SILENT_MS, this.ackWaitMs);
    const isPresent = ({ leftOut, heardAt }: WorkerCounts) => !leftOut && this.now() - heardAt <= silentMs;
    return [...this.workers].filter(([, counts]) => isPresent(counts)).map(([worker]) => worker);
  }

  /** Excludes a worker: drops its further samples, tells it to leave, and gives its groups to others. */
  leaveOut(worker: string, why: string): void {
    const counts = this.countsOf(worker);
    if (counts.leftOut) return;
    counts.leftOut = true;
    this.#release(worker);
    this.#options.say?.(`worker ${counts.name} is excluded: ${why}`);
    this.notify({ leftOut: [worker] });
  }

  /** Tells all workers that the run has ended. */
  async end(): Promise<void> {
    if (this.connection.isClosed()) return;
    this.notify({ over: true });
    const told = this.connection.flush().catch(() => {});
    await Promise.race([told, this.connection.closed(), pause(TELL_MS, new AbortController().signal)]);
  }

  #join(message: Msg): void {
    let refused: string | undefined;
    try {
      const { key, name } = read('joining', message.data);
      refused = this.#refusalOf(key);
      this.#options.say?.(refused === undefined ? `${name} joins` : `${name} was not admitted: ${refused}`);
      if (refused === undefined) Object.assign(this.countsOf(key), { name, heardAt: this.now() });
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      refused = error.message;
    }
    message.respond(write('admission', refused === undefined ? {} : { refused }));
  }

  /** Returns the reason why a worker may not join; undefined if it may. */
  #refusalOf(key: string): string | undefined {
    if (this.workers.get(key)?.leftOut === true) return 'This worker was excluded from the room.';
    const { maxWorkers = 64 } = this.#options;
    return this.present(key) < maxWorkers ? undefined : `The room is full: it has ${maxWorkers} workers.`;
  }

  async #status(message: Msg): Promise<void> {
    const worker = workerOf(message.subject);
    try {
      const status = read('status', await textSignedBy(worker, message.data));
      const { name, adapter, version, tokensPerS, groups, left = false } = status;
      const counts = this.countsOf(worker);
      if (counts.leftOut) return this.notify({ leftOut: [worker] }); // the worker can have missed the first notice
      if (counts.heardAt === LEFT) return; // sent before it left
      if (counts.adapter === '' && adapter !== '') this.#options.say?.(`${name} generates on ${adapter}`);
      if (left) this.#options.say?.(`${name} leaves`);
      const heardAt = left ? LEFT : this.now();
      Object.assign(counts, { ...{ name, version, tokensPerS, heardAt }, adapter: left ? '' : adapter });
      if (left) this.#release(worker);
      else this.leases.heard(worker, groups, heardAt);
    } catch (error) {
      this.#refuse(worker, error);
    }
  }

  async #take(message: Msg): Promise<void> {
    const worker = workerOf(message.subject);
    try {
      read('take', await textSignedBy(worker, message.data));
      // A request for a group also admits a worker that only an earlier controller of the run has admitted. An excluded worker gets no
      // answer.
      if (this.#refusalOf(worker) !== undefined) return;
      const counts = this.countsOf(worker);
      if (counts.heardAt === LEFT) return; // sent before it left
      counts.heardAt = this.now();
      this.#waiting = this.#waiting.filter((other) => other.worker !== worker);
      this.#waiting.push({ worker, message, since: Date.now() });
      this.#handOut();
    } catch (error) {
      this.#refuse(worker, error);
    }
  }

  /** Answers a waiting request with a group if one is free. A request that has waited too long is answered with none. */
  #handOut(): void {
    if (this.connection.isClosed()) return;
    const [now, present] = [this.now(), this.#present()];
    this.#waiting = this.#waiting.filter(({ worker, message, since }) => {
      const prompt = this.leases.take(worker, now, present);
      if (prompt === undefined && Date.now() - since < WAIT_MS) return true;
      message.respond(write('given', prompt === undefined ? {} : { prompt }));
      return false;
    });
  }

  /** Makes the groups of a worker available to others. */
  #release(worker: string): void {
    this.leases.leave(worker);
    this.#waiting = this.#waiting.filter((other) => other.worker !== worker);
    this.#handOut();
  }

  /** Counts a refused message. Rethrows any other error. */
  #refuse(worker: string, error: unknown): void {
    if (!(error instanceof MessageError)) throw error;
    this.countsOf(worker).refused[error.refusal]++;
  }
}

/** Creates a stream, or updates the settings of an existing one. */
async function ensureStream(
  jsm: JetStreamManager,
  { name, ...settings }: Parameters<JetStreamManager['streams']['add']>[0] & { name: string },
): Promise<void> {
  const { retention: _, storage: __, ...changeable } = settings;
  await jsm.streams.add({ name, ...settings }).catch(() => jsm.streams.update(name, changeable));
}
