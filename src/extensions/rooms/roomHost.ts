/**
 * The controller's side of a room without its samples: makes streams and buckets, lets workers in and leaves them out, tells them of new
 * weights, and counts what each has done.
 */

import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { KV } from '@nats-io/kv';
import type { Msg, NatsConnection } from '@nats-io/nats-core';
import { pause, untilDone } from './connect.ts';
import { Consumers } from './consumers.ts';
import { MessageError, type Refusal } from './frame.ts';
import { type Notice, read, type Weights, write } from './messages.ts';
import { JOIN, NOTICES, PROMPTS, SAMPLES, STATE, STATE_BUCKET, STATUSES } from './names.ts';
import { Tickets } from './tickets.ts';
import { WeightStore } from './weights.ts';

export interface RoomOptions {
  /** The run's config as plain JSON, which workers generate by. */
  config: Record<string, unknown>;
  /** Workers that may be in the room at once. Default: 64. */
  maxWorkers?: number;
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
  readonly #state: KV;
  readonly #options: RoomOptions;

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
      const refused = { malformed: 0, version: 0, signature: 0, ticket: 0 };
      const fresh = { name: worker.slice(0, 8), adapter: '', accepted: 0, rejected: {}, refused, duplicates: 0 };
      counts = { ...fresh, tokensPerS: 0, version: 0, leftOut: false, heardAt: Date.now() };
      if (this.workers.size >= KEPT_WORKERS) this.workers.delete(this.workers.keys().next().value!);
      this.workers.set(worker, counts);
    }
    return counts;
  }

  /** Counts the workers, except one, that have neither left nor been left out and that sent a sign of life lately. */
  present(except?: string): number {
    const silentMs = Math.max(SILENT_MS, this.ackWaitMs);
    const isPresent = ({ leftOut, heardAt }: WorkerCounts) => !leftOut && Date.now() - heardAt <= silentMs;
    return [...this.workers].filter(([worker, counts]) => worker !== except && isPresent(counts)).length;
  }

  /** Drops the worker's samples from now on and tells it to leave; the groups that it holds go to others when their time is over. */
  leaveOut(worker: string, why: string): void {
    const counts = this.countsOf(worker);
    if (counts.leftOut) return;
    counts.leftOut = true;
    this.#options.say?.(`worker ${counts.name} is excluded: ${why}`);
    this.notify({ leftOut: [worker] });
  }

  /** The run is over: workers leave. */
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
      if (refused === undefined) Object.assign(this.countsOf(key), { name, heardAt: Date.now() });
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      refused = error.message;
    }
    message.respond(write('admission', refused === undefined ? {} : { refused }));
  }

  /** Why a worker may not join; undefined if it may. */
  #refusalOf(key: string): string | undefined {
    if (this.workers.get(key)?.leftOut === true) return 'This worker was excluded from the room.';
    const { maxWorkers = 64 } = this.#options;
    return this.present(key) < maxWorkers ? undefined : `The room is full: it has ${maxWorkers} workers.`;
  }

  #status(message: Msg): void {
    const worker = message.subject.split('.')[2];
    const counts = this.countsOf(worker);
    if (counts.leftOut) this.notify({ leftOut: [worker] }); // it may have missed the first notice
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
}

/** Makes a stream, or gives one that is there these settings. */
async function ensureStream(
  jsm: JetStreamManager,
  { name, ...settings }: Parameters<JetStreamManager['streams']['add']>[0] & { name: string },
): Promise<void> {
  const { retention: _, storage: __, ...changeable } = settings;
  await jsm.streams.add({ name, ...settings }).catch(() => jsm.streams.update(name, changeable));
}
