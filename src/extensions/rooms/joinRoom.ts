/** A worker of a room: joins, requests groups, generates their samples and sends them, and loads new weights. */

import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/nats-core';
import { InputError } from '../../errors.ts';
import type { ExperienceRecord } from '../../grpo/pipeline/record.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { type Connect, enter, newUserKey, pause, untilDone, type UserKey } from './connect.ts';
import {
  isSameWeights,
  type Prompt,
  read,
  type Room,
  type Status,
  type Weights,
  write,
  writeSample,
} from './messages.ts';
import { JOIN, NOTICES, SAMPLES, STATE, stateStream, stateSubject, statusSubject, takeSubject } from './names.ts';
import { signatureOf, Signer } from './tickets.ts';
import { nameOf, readObject } from './weights.ts';

/** The engine by which a worker generates samples. */
export interface RoomEngine {
  /** Name of the GPU adapter, or of an engine without GPU. */
  adapter: string;
  /** Number of groups that the engine generates concurrently. */
  groupsAtOnce: number;
  /** Loads weights. Sequences in flight continue with them at their next token. */
  useWeights(version: number, file: Uint8Array): Promise<void>;
  /** Generates the samples of a group and passes each to `put`. Rejects if `signal` aborts. */
  generate(
    prompt: Prompt,
    worker: string,
    put: (record: ExperienceRecord) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void>;
  destroy(): void | Promise<void>;
}

/** The room as a worker knows it before it creates its engine. */
export interface OpenedRoom extends Room {
  /** Returns a file that the controller stored on the room's server. Throws InputError if the file is missing. */
  file(name: string): Promise<Uint8Array>;
}

export interface JoinOptions {
  connect: Connect;
  /** Address of the room's server: nats://host:port, or wss://host:port in a page. */
  address: string;
  code: string;
  /** Name of the worker in the room. */
  name: string;
  /**
   * Creates the engine for the room's model. Throws InputError if this machine lacks something that the room needs, such as the task's
   * module.
   */
  open(room: OpenedRoom): Promise<RoomEngine>;
  /** Aborts when the worker shall leave the room. Its unfinished groups are then given to other workers. */
  signal: AbortSignal;
  onStatus?(status: Status): void;
}

const STATUS_EVERY_MS = 2000;
/** After this many failed groups in a row, the worker reports the error and leaves. */
const MAX_FAILURES = 3;
/**
 * Milliseconds that a worker waits for the answer to a request for a group. The controller answers within half of this time, if necessary
 * without a group.
 */
const TAKE_MS = 10_000;
/** Maximum milliseconds that a leaving worker waits until its last messages are sent, because the server may be unreachable. */
const FLUSH_MS = 1000;
const NONE: Weights = { version: -1, digest: '' };

/**
 * Works for a room until `signal` aborts or the run ends. Resolves to the final status of the worker. Throws InputError if the room does
 * not admit the worker, or excludes it later.
 */
export async function joinRoom(options: JoinOptions): Promise<Status> {
  const { connect, address, code, name } = options;
  const key = await newUserKey();
  const connection = await enter(connect, { address, code, inbox: key.id, name });
  let session: RoomWorker | undefined;
  try {
    await askToJoin(connection, key.id, options);
    const { jetstream } = await import('@nats-io/jetstream');
    const js = jetstream(connection);
    const jsm = await js.jetstreamManager(false);
    const room = await openRoom(connection, jsm, options.signal);
    const engine = await options.open(room);
    session = new RoomWorker({ connection, js, jsm, key, signer: await Signer.of(key.seed), engine, room, options });
    return await session.work();
  } finally {
    await session?.end();
    await connection.close();
  }
}

/** Sends a request to join. Throws InputError if the controller refuses it. */
async function askToJoin(connection: NatsConnection, key: string, { address, name, signal }: JoinOptions) {
  const asking = write('joining', { name, key });
  const answer = await untilDone(() => connection.request(JOIN, asking, { timeout: 10_000 }), signal);
  const { refused } = read('admission', answer.data);
  if (refused !== undefined) throw new InputError(`The room at ${address} did not admit this machine: ${refused}`);
}

async function openRoom(connection: NatsConnection, jsm: JetStreamManager, signal: AbortSignal): Promise<OpenedRoom> {
  const asked = { last_by_subj: stateSubject(STATE.room) };
  const message = await untilDone(() => jsm.direct.getMessage(stateStream, asked), signal);
  if (!message) throw new InputError('The room has not published its config yet. Try again when its controller runs.');
  return {
    ...read('room', message.data),
    async file(name) {
      const bytes = await untilDone(() => readObject(connection, name), signal);
      if (bytes) return bytes;
      throw new InputError(`The room has no "${name}". Its controller may not have started: try again later.`);
    },
  };
}

interface WorkerParts {
  connection: NatsConnection;
  js: JetStreamClient;
  jsm: JetStreamManager;
  key: UserKey;
  signer: Signer;
  engine: RoomEngine;
  room: OpenedRoom;
  options: JoinOptions;
}

/** A group that this worker is generating. */
interface Held {
  uid: string;
  aborting: AbortController;
}

class RoomWorker {
  readonly #connection: NatsConnection;
  readonly #parts: WorkerParts;
  readonly #held = new Map<Held, Promise<void>>();
  readonly #leaving = new AbortController();
  #timers: ReturnType<typeof setInterval>[] = [];
  #weights: Weights = NONE;
  #wanted: Weights = NONE;
  #following: Promise<void> | undefined;
  /** Weights of the group that was taken last. Used only if the room verifies samples. */
  #next: Weights = NONE;
  #turning: Promise<unknown> = Promise.resolve();
  #tokens = 0;
  #since: number | undefined;
  #failures = 0;
  #ended: Promise<void> | undefined;
  #failure: { error: unknown } | undefined;

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#connection = parts.connection;
  }

  async work(): Promise<Status> {
    const { options, room, engine } = this.#parts;
    const { signal } = this.#leaving;
    if (options.signal.aborted) this.#leave();
    const unlink = onAbort(options.signal, () => this.#leave());
    this.#connection.subscribe(NOTICES, { callback: (error, message) => void (error ?? this.#notice(message.data)) });
    void this.#watchConnection();
    try {
      await this.#catchUp();
      this.#next = this.#weights;
      this.#timers = [setInterval(() => this.#tell(), Math.min(STATUS_EVERY_MS, room.ackWaitMs / 3))];
      this.#tell();
      while (!signal.aborted) {
        if (this.#held.size >= engine.groupsAtOnce) await Promise.race(this.#held.values());
        else await untilDone(() => this.#takeOne(), signal);
      }
    } catch (error) {
      if (!signal.aborted) this.#failure = { error };
    } finally {
      unlink();
    }
    await this.end();
    if (this.#failure) throw this.#failure.error;
    return this.#status();
  }

  /** Leaves the room: aborts the groups in flight, waits until they have ended, and destroys the engine. */
  end(): Promise<void> {
    return (this.#ended ??= this.#end());
  }

  async #end(): Promise<void> {
    this.#leave();
    for (const timer of this.#timers.splice(0)) clearInterval(timer);
    await Promise.allSettled([...this.#held.values(), this.#following, this.#turning]);
    if (!this.#connection.isClosed())
      await Promise.race([this.#connection.flush().catch(() => {}), pause(FLUSH_MS, new AbortController().signal)]);
    await this.#parts.engine.destroy();
  }

  #leave(): void {
    if (this.#leaving.signal.aborted) return;
    this.#tell(true); // immediately, because a page that is closing runs no later code
    this.#leaving.abort(new Error('This worker leaves the room.'));
    for (const { aborting } of this.#held.keys()) aborting.abort();
  }

  /** Makes the worker leave with an error. Errors while it is leaving anyway are ignored, because its pending requests then fail. */
  #fail(error: unknown): void {
    if (!this.#leaving.signal.aborted) this.#failure ??= { error };
    this.#leave();
  }

  /** Requests a group, and starts to generate it. Returns without one if the room has none within a few seconds. */
  async #takeOne(): Promise<void> {
    const { key, signer } = this.#parts;
    const { signal } = this.#leaving;
    const asking = this.#connection.request(takeSubject(key.id), signer.text(write('take', {})), { timeout: TAKE_MS });
    const { data } = await orAborted(asking, signal);
    const { prompt } = read('given', data);
    if (prompt !== undefined && !signal.aborted) this.#take(read('prompt', new TextEncoder().encode(prompt)));
  }

  #take(prompt: Prompt): void {
    const held: Held = { uid: prompt.uid, aborting: new AbortController() };
    this.#since ??= performance.now();
    if (this.#parts.room.verifies) this.#turnTo(prompt.weights);
    else if (!isSameWeights(prompt.weights, this.#weights)) this.#turning = this.#catchUp();
    this.#held.set(
      held,
      this.#generate(held, prompt, this.#turning).finally(() => this.#held.delete(held)),
    );
  }

  /**
   * Loads the weights that a prompt names, once all groups that were taken before have ended: in a room that verifies, all tokens of a
   * group must be sampled by the weights of its prompt.
   */
  #turnTo(weights: Weights): void {
    if (isSameWeights(weights, this.#next)) return;
    this.#next = weights;
    const before = [...this.#held.values()];
    const turn = async () => {
      await Promise.allSettled(before);
      try {
        await this.#loadOnce(weights);
      } finally {
        if (this.#next === weights && !isSameWeights(weights, this.#weights)) this.#next = NONE; // the next group tries to load them again
      }
    };
    this.#turning = turn();
    this.#turning.catch(() => {}); // each group that waits for it fails
  }

  async #generate({ aborting: { signal } }: Held, prompt: Prompt, turning: Promise<unknown>): Promise<void> {
    const { key, engine, room } = this.#parts;
    try {
      await turning;
      // Skip the group if its weights are not loaded: the room has deleted them and has offered the group again, or the controller has gone
      // back to older weights.
      const isReady = room.verifies
        ? isSameWeights(prompt.weights, this.#weights)
        : prompt.weights.version <= this.#weights.version;
      if (!isReady || signal.aborted) return;
      await engine.generate(prompt, key.id, (record) => this.#put(prompt, record, signal), signal);
      this.#failures = 0;
    } catch (error) {
      if (!signal.aborted && ++this.#failures >= MAX_FAILURES) this.#fail(error);
    }
  }

  /** Sends a sample. Waits while the room's stream is full. The server ignores a sample that it has already stored. */
  async #put({ uid, ticket }: Prompt, record: ExperienceRecord, signal: AbortSignal): Promise<void> {
    const { key, signer } = this.#parts;
    const bytes = await signer.bytes(writeSample(record, ticket));
    const most = this.#connection.info?.max_payload ?? Infinity;
    if (bytes.length > most)
      throw new InputError(
        `A sample has ${bytes.length} bytes, and the room's server takes ${most}. It needs a larger max_payload.`,
      );
    const subject = SAMPLES.subjectOf(key.id, uid);
    // The signature serves as message id. The server ignores a second message with the same id, so an id that others could guess would let
    // them suppress this message.
    const msgID = signatureOf(bytes);
    await untilDone(() => this.#parts.js.publish(subject, bytes, { msgID }), signal);
    const { mask } = record.columns; // 1 = sampled; tool output is 0
    this.#tokens += mask instanceof Uint8Array ? mask.reduce((sum, m) => sum + m, 0) : 0;
  }

  #notice(data: Uint8Array): void {
    try {
      const { weights, aborted = [], leftOut = [], over = false } = read('notice', data);
      for (const { uid, aborting } of this.#held.keys()) if (aborted.includes(uid)) aborting.abort();
      if (leftOut.includes(this.#parts.key.id))
        this.#fail(new InputError('The room has excluded this worker: one of its samples was rejected.'));
      if (weights && !this.#parts.room.verifies) void this.#follow(weights);
      if (over) this.#leave();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Reads which weights are the room's newest, and loads them. */
  async #catchUp(): Promise<void> {
    const { signal } = this.#leaving;
    const asked = { last_by_subj: stateSubject(STATE.version) };
    while (!signal.aborted) {
      const message = await untilDone(() => this.#parts.jsm.direct.getMessage(stateStream, asked), signal);
      if (message) return this.#follow(read('weights', message.data));
      await pause(1000, signal); // the controller has not stored any yet
    }
  }

  #follow(weights: Weights): Promise<void> {
    this.#wanted = weights;
    this.#following ??= this.#load()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => (this.#following = undefined));
    return this.#following;
  }

  async #load(): Promise<void> {
    const { signal } = this.#leaving;
    while (!isSameWeights(this.#weights, this.#wanted) && !signal.aborted) {
      const wanted = this.#wanted;
      if (!(await this.#loadOnce(wanted)) && this.#wanted === wanted) await pause(200, signal); // newer ones are on their way
    }
  }

  /** Loads weights. Returns false if the room has deleted them. */
  async #loadOnce(weights: Weights): Promise<boolean> {
    const { version, digest } = weights;
    const file = await untilDone(() => readObject(this.#connection, nameOf(version), digest), this.#leaving.signal);
    if (!file) return false;
    await this.#parts.engine.useWeights(version, file);
    this.#weights = weights;
    return true;
  }

  /**
   * After each reconnect, loads weights that were published while the connection was lost. If the connection is closed for good, the worker
   * leaves with an error.
   */
  async #watchConnection(): Promise<void> {
    void this.#connection.closed().then((error) => {
      const why = error instanceof Error ? error.message : 'it no longer accepts this join code';
      this.#fail(new InputError(`The room's server has closed the connection (${why}). Join again.`));
    });
    for await (const { type } of this.#connection.status())
      if (type === 'reconnect' && !this.#parts.room.verifies) void this.#catchUp().catch(() => {}); // a worker that has left needs no weights
  }

  #status(): Status {
    const { options, engine } = this.#parts;
    const seconds = this.#since === undefined ? 0 : (performance.now() - this.#since) / 1000;
    return {
      name: options.name,
      adapter: engine.adapter.slice(0, 200),
      version: Math.max(0, this.#weights.version),
      groups: Array.from(this.#held.keys(), ({ uid }) => uid),
      tokens: this.#tokens,
      tokensPerS: seconds > 0 ? this.#tokens / seconds : 0,
    };
  }

  #tell(left = false): void {
    const status = this.#status();
    const { key, signer } = this.#parts;
    const text = write('status', { ...status, ...(left && { left, groups: [] }) });
    if (!this.#connection.isClosed()) this.#connection.publish(statusSubject(key.id), signer.text(text));
    this.#parts.options.onStatus?.(status);
  }
}

/** Resolves with the result of `work`. Rejects with the signal's reason if the signal aborts first. */
async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let unlink = (): void => {};
  const aborted = new Promise<never>((_, reject) => (unlink = onAbort(signal, () => reject(signal.reason as Error))));
  try {
    return await Promise.race([work, aborted]);
  } finally {
    work.catch(() => {});
    unlink();
  }
}
