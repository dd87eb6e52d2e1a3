/** A worker of a room. It asks to join, takes groups from the queue, generates them, sends their samples, and follows the weights. */

import type { Consumer, JetStreamClient, JetStreamManager, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/nats-core';
import { InputError } from '../../errors.ts';
import type { ExperienceRecord } from '../../grpo/queue/types.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { type Connect, enter, newUserKey, pause, pull, untilDone, type UserKey } from './connect.ts';
import { type Prompt, read, type Room, type Status, type Weights, write, writeSample } from './messages.ts';
import { JOIN, NOTICES, PROMPTS, SAMPLES, STATE, stateStream, stateSubject, statusSubject } from './names.ts';
import { withSignature } from './tickets.ts';
import { nameOf, readObject } from './weights.ts';

/** The generating engine of a worker. */
export interface RoomEngine {
  /** Name of the GPU, or of the engine that runs without one. */
  adapter: string;
  /** Number of groups to work on concurrently. */
  groupsAtOnce: number;
  /** Samples with these weights from the next token boundary. */
  useWeights(version: number, file: Uint8Array): Promise<void>;
  /** Generates a group and passes each sample to `put`. Rejects if `signal` aborts. */
  generate(
    prompt: Prompt,
    worker: string,
    put: (record: ExperienceRecord) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void>;
  destroy(): void | Promise<void>;
}

/** The room as a worker sees it before its engine exists. */
export interface OpenedRoom extends Room {
  /** Returns a file that the controller stored. Throws InputError if the file is missing. */
  file(name: string): Promise<Uint8Array>;
}

export interface JoinOptions {
  connect: Connect;
  /** nats://host:port, or wss://host:port in a page. */
  address: string;
  code: string;
  /** Name of the worker in the room. */
  name: string;
  /** Creates the engine that the room needs. Throws InputError if this machine refuses the room. */
  open(room: OpenedRoom): Promise<RoomEngine>;
  /** Aborts when the worker should leave. Its groups in flight then go to other workers. */
  signal: AbortSignal;
  onStatus?(status: Status): void;
}

const STATUS_EVERY_MS = 2000;
/** Number of consecutive failed groups after which the worker reports an error and leaves. */
const MAX_FAILURES = 3;
/** Milliseconds before a leaving worker's groups are delivered again. With 0, its own open request would receive them. */
const GONE_MS = 1000;
/** Milliseconds that a leaving worker waits for its last messages to be sent. The server may be unreachable. */
const FLUSH_MS = 1000;
const NONE: Weights = { version: -1, digest: '' };

/**
 * Works until `signal` aborts or the run ends. Resolves to the worker's counts. Throws InputError if the worker is not admitted, or is
 * excluded later.
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
    session = new RoomWorker({ connection, js, jsm, key, engine, room, options });
    return await session.work();
  } finally {
    await session?.end();
    await connection.close();
  }
}

/** Throws InputError if the controller does not admit the worker. */
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
  engine: RoomEngine;
  room: OpenedRoom;
  options: JoinOptions;
}

/** A group in flight in this worker. */
interface Held {
  message: JsMsg;
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
  #consumer: Consumer | undefined;
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
    const ping = () => {
      if (!this.#connection.isClosed()) for (const { message } of this.#held.keys()) message.working();
    };
    try {
      await this.#catchUp();
      this.#timers = [setInterval(ping, room.ackWaitMs / 3), setInterval(() => this.#tell(), STATUS_EVERY_MS)];
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

  /** Leaves the room: returns its groups to the queue, sends a last status and destroys the engine. */
  end(): Promise<void> {
    return (this.#ended ??= this.#end());
  }

  async #end(): Promise<void> {
    this.#leave();
    for (const timer of this.#timers.splice(0)) clearInterval(timer);
    await Promise.allSettled([...this.#held.values(), this.#following]);
    if (!this.#connection.isClosed()) {
      this.#tell(true);
      await Promise.race([this.#connection.flush().catch(() => {}), pause(FLUSH_MS, new AbortController().signal)]);
    }
    await this.#parts.engine.destroy();
  }

  #leave(): void {
    this.#leaving.abort(new Error('This worker leaves the room.'));
    for (const { message, aborting } of this.#held.keys()) {
      if (!this.#connection.isClosed()) message.nak(GONE_MS); // immediately, because a page that is closing runs no later code
      aborting.abort();
    }
  }

  /** Fails the worker. Does nothing if the worker is leaving, because its pending requests fail then. */
  #fail(error: unknown): void {
    if (!this.#leaving.signal.aborted) this.#failure ??= { error };
    this.#leave();
  }

  /** Takes a group if one arrives within about two seconds. */
  async #takeOne(): Promise<void> {
    this.#consumer ??= await this.#parts.js.consumers.get(PROMPTS.stream, PROMPTS.consumer);
    await pull(this.#consumer, 1, this.#leaving.signal, (message) => this.#take(message));
  }

  #take(message: JsMsg): void {
    if (this.#leaving.signal.aborted) return message.nak(GONE_MS);
    const prompt = read('prompt', message.data);
    const held: Held = { message, uid: prompt.uid, aborting: new AbortController() };
    this.#since ??= performance.now();
    this.#held.set(
      held,
      this.#generate(held, prompt).finally(() => this.#held.delete(held)),
    );
  }

  async #generate({ message, aborting }: Held, prompt: Prompt): Promise<void> {
    const { key, engine } = this.#parts;
    const { signal } = aborting;
    try {
      if (!isSame(prompt.weights, this.#weights)) await this.#catchUp();
      // The prompt is from a controller that died. A resumed one reaches this version again.
      if (prompt.weights.version > this.#weights.version) return message.nak(1000);
      await engine.generate(prompt, key.id, (record) => this.#put(prompt, record, signal), signal);
      message.ack(); // if this is lost, the group is delivered again, but its samples are stored already
      this.#failures = 0;
    } catch (error) {
      if (!this.#connection.isClosed()) message.nak(signal.aborted ? 0 : 1000);
      if (!signal.aborted && ++this.#failures >= MAX_FAILURES) this.#fail(error);
    }
  }

  /** Sends a sample. Waits while the room holds as many samples as it can. The server ignores a sample that is already stored. */
  async #put({ uid, ticket }: Prompt, record: ExperienceRecord, signal: AbortSignal): Promise<void> {
    const { id, seed } = this.#parts.key;
    const bytes = await withSignature(writeSample(record, ticket), seed);
    const most = this.#connection.info?.max_payload ?? Infinity;
    if (bytes.length > most)
      throw new InputError(
        `A sample has ${bytes.length} bytes, and the room's server takes ${most}. It needs a larger max_payload.`,
      );
    const index = record.key.slice(uid.length + 1);
    const subject = SAMPLES.subjectOf(id, uid);
    await untilDone(() => this.#parts.js.publish(subject, bytes, { msgID: `${ticket}_${index}` }), signal);
    const { response } = record.columns;
    this.#tokens += response instanceof Uint32Array ? response.length : 0;
  }

  #notice(data: Uint8Array): void {
    try {
      const { weights, aborted = [], leftOut = [], over = false } = read('notice', data);
      for (const { uid, aborting } of this.#held.keys()) if (aborted.includes(uid)) aborting.abort();
      if (leftOut.includes(this.#parts.key.id))
        this.#fail(new InputError('The room has excluded this worker: one of its samples was rejected.'));
      if (weights) void this.#follow(weights);
      if (over) this.#leave();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Requests the room's current weights. */
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
    while (!isSame(this.#weights, this.#wanted) && !signal.aborted) {
      const wanted = this.#wanted;
      const file = await untilDone(() => readObject(this.#connection, nameOf(wanted.version), wanted.digest), signal);
      if (file) {
        await this.#parts.engine.useWeights(wanted.version, file);
        this.#weights = wanted;
      } else if (this.#wanted === wanted) await pause(200, signal); // newer weights are on their way
    }
  }

  /** Loads weights that were published while the connection was lost. Ends the worker when its connection is closed. */
  async #watchConnection(): Promise<void> {
    void this.#connection.closed().then((error) => {
      const why = error instanceof Error ? error.message : 'without a reason';
      this.#fail(new InputError(`The room's server has closed the connection (${why}). Join again.`));
    });
    for await (const { type } of this.#connection.status())
      if (type === 'reconnect') void this.#catchUp().catch(() => {}); // a worker that has left needs no weights
  }

  #status(): Status {
    const { options, engine } = this.#parts;
    const seconds = this.#since === undefined ? 0 : (performance.now() - this.#since) / 1000;
    return {
      name: options.name,
      adapter: engine.adapter.slice(0, 200),
      version: Math.max(0, this.#weights.version),
      groups: this.#held.size,
      tokens: this.#tokens,
      tokensPerS: seconds > 0 ? this.#tokens / seconds : 0,
    };
  }

  #tell(left = false): void {
    const status = this.#status();
    if (!this.#connection.isClosed())
      this.#connection.publish(
        statusSubject(this.#parts.key.id),
        write('status', { ...status, ...(left && { left }) }),
      );
    this.#parts.options.onStatus?.(status);
  }
}

/** True if version and digest are equal. A controller that returns to an older checkpoint publishes other weights under a used number. */
const isSame = (a: Weights, b: Weights): boolean => a.version === b.version && a.digest === b.digest;
