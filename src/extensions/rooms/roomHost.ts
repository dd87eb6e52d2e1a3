/**
 * The controller's side of a room but for its samples: makes streams and buckets, lets workers in and leaves them out, tells them of new
 * weights, and counts what each has done.
 */

import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { Msg, NatsConnection } from '@nats-io/nats-core';
import { pause, untilDone } from './connect.ts';
import { Consumers } from './consumers.ts';
import { MessageError, type Refusal } from './frame.ts';
import { type Admission, type Joining, type Notice, read, type Weights, write } from './messages.ts';
import { JOIN, NOTICES, PROMPTS, SAMPLES, STATE, STATE_BUCKET, STATUSES } from './names.ts';
import { Tickets } from './tickets.ts';
import { WeightStore } from './weights.ts';

/** Who may enter, as the server sees it. */
export interface Access {
  /**
   * Gives the key of who asks the rights of a worker.
   * @param isSilent of a worker that was let in: it has left, or nothing was heard of it for long, and its place is free
   */
  admit(joining: Joining, isSilent?: (worker: string) => boolean): Promise<Admission>;
  /** The server knows the worker no longer, and ends its connection. */
  revoke(worker: string): Promise<void>;
}

export interface RoomOptions {
  /** The run's config as plain JSON, which workers generate by. */
  config: Record<string, unknown>;
  access: Access;
  /** Milliseconds without a sign of life after which a group goes to another worker. */
  ackWaitMs?: number;
  /** Bytes of samples that may wait for the controller; workers wait while there are more. */
  maxSampleBytes?: number;
  /** Versions of the weights that stay on the server. Absent = 2. */
  keptVersions?: number;
  /** Resumes with the groups and samples of an earlier controller; else they are dropped. */
  resume?: boolean;
  /** Puts what workers read as they come, before the first is let in. */
  prepare?: (weights: WeightStore) => Promise<void>;
  /** Called with a sentence when a worker joins, leaves or is excluded. */
  say?: (line: string) => void;
}

/** What a worker has done, and what came of it. */
export interface WorkerCounts {
  name: string;
  adapter: string;
  /** Samples that were taken for training. */
  accepted: number;
  /** Samples that failed a check, by why. */
  rejected: Record<string, number>;
  /** Messages that could not be read or were of no group of its own. */
  refused: Record<Refusal, number>;
  /** Samples that were duplicates, or no longer needed. */
  duplicates: number;
  tokensPerS: number;
  /** Version of its weights. */
  version: number;
  leftOut: boolean;
  /** Time of its admission or last status, in milliseconds since 1970; 0 = it has left. */
  heardAt: number;
}

const NANOSECONDS = 1e6;
const WORKERS_EVERY_MS = 2000;
/** Without a sign of life a worker that is there is silent, at the least; it gives one every two seconds. */
const SILENT_MS = 10_000;
/** Time that a server which has just come back has to make streams and buckets. */
const OPEN_MS = 60_000;
/** A server that is gone is told nothing: workers see the end by its own end. */
const TELL_MS = 5000;
/** Workers that are remembered. */
const KEPT_WORKERS = 10_000;

export class RoomHost {
  readonly connection: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly consumers: Consumers;
  readonly weights: WeightStore;
  readonly tickets: Tickets;
  readonly ackWaitMs: number;
  readonly workers = new Map<string, WorkerCounts>();
  /** Those that were published last. */
  published: Weights = { version: 0, digest: '' };
  /** Requests to join that could not be read. */
  refusedJoins = 0;
  readonly #state: KV;
  readonly #options: RoomOptions;
  readonly #openedAt = Date.now();
  #told = false;
  readonly #telling: ReturnType<typeof setInterval>;

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
    this.connection.subscribe(JOIN, { callback: (error, message) => void (error ?? this.#join(message)) });
    this.connection.subscribe(STATUSES, { callback: (error, message) => void (error ?? this.#status(message)) });
    this.#telling = setInterval(() => void this.#tell().catch(() => {}), WORKERS_EVERY_MS); // again, when the server is back
  }

  /** @param connection as a user who may do everything */
  static open(connection: NatsConnection, options: RoomOptions): Promise<RoomHost> {
    return untilDone(() => RoomHost.#open(connection, options), AbortSignal.timeout(OPEN_MS));
  }

  static async #open(connection: NatsConnection, options: RoomOptions): Promise<RoomHost> {
    const { ackWaitMs = 30_000, maxSampleBytes = 256 * 2 ** 20, keptVersions = 2, resume = false } = options;
    const { DiscardPolicy, jetstream, RetentionPolicy, StorageType } = await import('@nats-io/jetstream');
    const { Kvm } = await import('@nats-io/kv');
    const js = jetstream(connection);
    const jsm = await js.jetstreamManager();
    const queue = { retention: RetentionPolicy.Workqueue, discard: DiscardPolicy.New, storage: StorageType.File };
    await ensureStream(jsm, {
      ...{ ...queue, name: PROMPTS.stream, subjects: [PROMPTS.subjects] },
      // A group that is there already is not published twice.
      ...{ max_msgs_per_subject: 1, discard_new_per_subject: true },
    });
    await ensureStream(jsm, {
      ...{ ...queue, name: SAMPLES.stream, subjects: [SAMPLES.subjects], max_bytes: maxSampleBytes },
      duplicate_window: 10 * 60_000 * NANOSECONDS,
    });
    if (!resume) for (const { stream } of [PROMPTS, SAMPLES]) await jsm.streams.purge(stream);
    const state = await new Kvm(js).create(STATE_BUCKET, { storage: StorageType.File });
    const known = resume ? (await state.get(STATE.secret))?.value : undefined;
    const secret = Uint8Array.from(known ?? crypto.getRandomValues(new Uint8Array(32)));
    await state.put(STATE.secret, secret);
    await state.put(STATE.room, write('room', { config: options.config, ackWaitMs }));
    const tickets = await Tickets.of(secret);
    const weights = await WeightStore.open(connection, keptVersions);
    await options.prepare?.(weights);
    const consumers = new Consumers(connection, jsm, state, ackWaitMs);
    await consumers.check();
    return new RoomHost({ connection, js, jsm, consumers, weights, tickets, ackWaitMs }, state, options);
  }

  /** Publishes weights and tells the workers. */
  async publishWeights(version: number, bytes: Uint8Array): Promise<void> {
    const published = { version, digest: await this.weights.putVersion(version, bytes) };
    await this.#state.put(STATE.version, write('weights', published));
    this.published = published;
    this.notify({ weights: published });
  }

  notify(notice: Notice): void {
    this.connection.publish(NOTICES, write('notice', notice));
  }

  /** The counts of a worker, zero at first. */
  countsOf(worker: string): WorkerCounts {
    let counts = this.workers.get(worker);
    if (!counts) {
      const refused = { malformed: 0, version: 0, ticket: 0 };
      const fresh = { name: worker.slice(0, 8), adapter: '', accepted: 0, rejected: {}, refused, duplicates: 0 };
      counts = { ...fresh, tokensPerS: 0, version: 0, leftOut: false, heardAt: Date.now() };
      if (this.workers.size >= KEPT_WORKERS) this.workers.delete(this.workers.keys().next().value!);
      this.workers.set(worker, counts);
    }
    this.#told = false;
    return counts;
  }

  /** Workers that are here: they have neither left nor been left out, and were heard of lately. */
  get present(): number {
    return [...this.workers].filter(([worker, { heardAt }]) => heardAt > 0 && !this.#isSilent(worker)).length;
  }

  /** The worker is not let in any more; what it holds goes to others when its time is over. */
  async leaveOut(worker: string, why: string): Promise<void> {
    const counts = this.countsOf(worker);
    if (counts.leftOut) return;
    counts.leftOut = true;
    this.#options.say?.(`worker ${counts.name} is left out: ${why}`);
    await this.#options.access.revoke(worker);
  }

  /** The run is over: workers leave. */
  async end(): Promise<void> {
    if (!this.connection.isClosed()) {
      this.notify({ over: true });
      const told = this.connection.flush().catch(() => {});
      await Promise.race([told, this.connection.closed(), pause(TELL_MS, new AbortController().signal)]);
    }
    await this.close();
  }

  async close(): Promise<void> {
    clearInterval(this.#telling);
    if (!this.connection.isClosed()) await this.#tell().catch(() => {});
  }

  async #join(message: Msg): Promise<void> {
    let answer: Admission;
    try {
      const joining = read('joining', message.data);
      const isOut = this.workers.get(joining.key)?.leftOut === true;
      answer = isOut
        ? { refused: 'This worker was left out of the room.' }
        : await this.#options.access.admit(joining, this.#isSilent);
      if ('worker' in answer) {
        Object.assign(this.countsOf(answer.worker), { name: joining.name, heardAt: Date.now() });
        this.#options.say?.(`${joining.name} joins`);
      } else this.#options.say?.(`${joining.name} was not let in: ${answer.refused}`);
    } catch (error) {
      if (!(error instanceof MessageError)) this.#options.say?.(`nobody can join for now: ${String(error)}`);
      this.refusedJoins++;
      answer = { refused: error instanceof MessageError ? error.message : 'The room cannot let anybody in for now.' };
    }
    message.respond(write('admission', answer));
  }

  #status(message: Msg): void {
    const counts = this.countsOf(message.subject.split('.')[2]);
    try {
      const { name, adapter, version, tokensPerS, left = false } = read('status', message.data);
      if (counts.adapter === '' && adapter !== '') this.#options.say?.(`${name} generates on ${adapter}`);
      if (left) this.#options.say?.(`${name} leaves`);
      Object.assign(counts, {
        name,
        adapter: left ? '' : adapter,
        version,
        tokensPerS,
        heardAt: left ? 0 : Date.now(),
      });
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      counts.refused[error.refusal]++;
    }
  }

  /** A worker of an earlier controller has had the time since this one came to be heard of. */
  readonly #isSilent = (worker: string): boolean => {
    const { leftOut = false, heardAt = this.#openedAt } = this.workers.get(worker) ?? {};
    return leftOut || Date.now() - heardAt > Math.max(SILENT_MS, this.ackWaitMs);
  };

  async #tell(): Promise<void> {
    if (this.#told) return;
    this.#told = true;
    await this.#state.put(STATE.workers, JSON.stringify(Object.fromEntries(this.workers)));
  }
}

/** Makes a stream, or gives one that is there these settings. */
async function ensureStream(
  jsm: JetStreamManager,
  { name, ...settings }: Parameters<JetStreamManager['streams']['add']>[0] & { name: string },
): Promise<void> {
  const { retention: _, storage: __, ...changeable } = settings;
  await jsm.streams.add({ name, ...settings }).catch(() => jsm.streams.update(name, changeable));
}
