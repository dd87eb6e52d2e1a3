/**
 * The controller of a room, except its samples. Creates streams and buckets, admits and excludes workers, hands out groups, announces new
 * weights, and counts what each worker did.
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
  /** The run's config as plain JSON, which workers generate with. */
  config: Record<string, unknown>;
  /** Maximum number of workers in the room at the same time. Default: 64. */
  maxWorkers?: number;
  /** Milliseconds without a sign of life after which a group goes to another worker. */
  ackWaitMs?: number;
  /** Milliseconds after which a second worker gets the group too. Default: ten minutes. */
  deadlineMs?: number;
  /** Maximum number of groups of one worker at the same time. Default: 16. */
  maxHeld?: number;
  /** True if samples are verified: workers then generate each group by the weights of its prompt. */
  verifies?: boolean;
  /** Maximum number of bytes of samples that wait for the controller. Workers wait while the limit is reached. */
  maxSampleBytes?: number;
  /** Number of weight versions kept on the server. Default: 2. */
  keptVersions?: number;
  /** True to resume with the groups and samples of an earlier controller. Default: they are dropped. */
  resume?: boolean;
  /** Stores the files that new workers read. Called before the first worker is admitted. */
  prepare?: (weights: WeightStore) => Promise<void>;
  /**
   * Returns the current time in milliseconds. It decides when a worker counts as silent and when a group is in flight for too long.
   * Default: the system's clock.
   */
  now?: () => number;
  /** Called with a sentence when a worker joins, leaves or is excluded. */
  say?: (line: string) => void;
}

/**
 * `heardAt` of a worker that has left. Signatures are checked in parallel, so a message that the worker sent earlier can be handled after
 * its farewell.
 */
const LEFT = -Infinity;

/** Counts of a worker's samples by result. */
export interface WorkerCounts {
  name: string;
  adapter: string;
  /** Samples accepted for training. */
  accepted: number;
  /** Samples that failed a check, by reason. */
  rejected: Record<string, number>;
  /** Messages that could not be read, or that belong to no group of the worker. */
  refused: Record<Refusal, number>;
  /** Samples that were duplicates or no longer needed. */
  duplicates: number;
  tokensPerS: number;
  /** Version of the worker's weights. */
  version: number;
  leftOut: boolean;
  /** Time of the worker's admission or last status, by `now`; LEFT after it has left. */
  heardAt: number;
}

const NANOSECONDS = 1e6;
/** Milliseconds without a sign of life after which a worker counts as silent. Workers send one every two seconds. */
const SILENT_MS = 10_000;
/** Milliseconds that a restarted server has to create streams and buckets. */
const OPEN_MS = 60_000;
/** Time limit to announce the end of the run, in milliseconds. If the server is unreachable, workers notice that themselves. */
const TELL_MS = 5000;
/** Maximum number of workers whose counts are kept. */
const KEPT_WORKERS = 10_000;
/** Milliseconds after which a worker that waits for a group is told to ask again. */
const WAIT_MS = 5000;

/** A worker that waits for a group. */
interface Waiting {
  worker: string;
  message: Msg;
  since: number;
}

/** The controller's connection to a room: workers, notices, weights and counts. */
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
  /** The weights that were published last. */
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

  /** @param connection of a user with all rights */
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

  /** Publishes weights and announces them to the workers. */
  async publishWeights(version: number, bytes: Uint8Array): Promise<void> {
    const published = { version, digest: await this.weights.putVersion(version, bytes) };
    await this.#state.put(STATE.version, write('weights', published));
    this.published = published;
    this.notify({ weights: published });
  }

  notify(notice: Notice): void {
    if (!this.connection.isClosed()) this.connection.publish(NOTICES, write('notice', notice));
  }

  /** Offers a group to the workers, or offers it again with another prompt. */
  offer(uid: string, prompt: string, copies: number): void {
    this.leases.offer(uid, prompt, copies);
    this.#handOut();
  }

  /** Tells whether samples of the group are missing. */
  want(uid: string, isWanted: boolean): void {
    this.leases.want(uid, isWanted);
    if (isWanted) this.#handOut();
  }

  /** Ends groups, and cancels those that a worker still generates. */
  withdraw(uids: readonly string[]): void {
    const aborted = uids.filter((uid) => this.leases.end(uid, this.now()));
    if (aborted.length > 0) this.notify({ aborted });
  }

  /** Returns the counts of a worker, initially zero. */
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

  /** Returns the number of workers that have not left, are not excluded and sent a recent sign of life. `except` is not counted. */
  present(except?: string): number {
    return this.#present().filter((worker) => worker !== except).length;
  }

  #present(): string[] {
    const silentMs = Math.max(SILENT_MS, this.ackWaitMs);
    const isPresent = ({ leftOut, heardAt }: WorkerCounts) => !leftOut && this.now() - heardAt <= silentMs;
    return [...this.workers].filter(([, counts]) => isPresent(counts)).map(([worker]) => worker);
  }

  /** Excludes a worker: drops its samples from now on and tells it to leave. Its groups go to others. */
  leaveOut(worker: string, why: string): void {
    const counts = this.countsOf(worker);
    if (counts.leftOut) return;
    counts.leftOut = true;
    this.#release(worker);
    this.#options.say?.(`worker ${counts.name} is excluded: ${why}`);
    this.notify({ leftOut: [worker] });
  }

  /** Announces the end of the run, so that workers leave. */
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

  /** Returns the reason why a worker cannot join; undefined if it can. */
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
      // A worker that an earlier controller admitted is admitted here. A worker that is refused gets no answer.
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

  /** Gives groups to the workers that wait for one. */
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

  /** Gives the groups of a worker that left to others. */
  #release(worker: string): void {
    this.leases.leave(worker);
    this.#waiting = this.#waiting.filter((other) => other.worker !== worker);
    this.#handOut();
  }

  /** Counts a message that cannot be read. */
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
