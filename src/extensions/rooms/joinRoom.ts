/** A worker of a room: asks to be let in, takes groups from the queue, generates them, sends their samples, and follows the weights. */

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

/** What generates in a worker. */
export interface RoomEngine {
  /** The GPU, or what stands in for it. */
  adapter: string;
  /** Groups that it works on at once. */
  groupsAtOnce: number;
  /** Draws by these weights from the next token boundary on. */
  useWeights(version: number, file: Uint8Array): Promise<void>;
  /** Puts each sample of the group; rejects if `signal` aborts. */
  generate(
    prompt: Prompt,
    worker: string,
    put: (record: ExperienceRecord) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void>;
  destroy(): void | Promise<void>;
}

/** What the room tells a worker before it has an engine. */
export interface OpenedRoom extends Room {
  /** A file that the controller has put there. Throws InputError if it is not there. */
  file(name: string): Promise<Uint8Array>;
}

export interface JoinOptions {
  connect: Connect;
  /** nats://host:port, or wss://host:port in a page. */
  address: string;
  code: string;
  /** What the room calls it. */
  name: string;
  /** Makes the engine that the room needs. Throws InputError for a room that this machine does not work for. */
  open(room: OpenedRoom): Promise<RoomEngine>;
  /** Leaves: groups in flight go to others. */
  signal: AbortSignal;
  onStatus?(status: Status): void;
}

const STATUS_EVERY_MS = 2000;
/** Groups in a row that may fail before the worker says so and leaves. */
const MAX_FAILURES = 3;
/** What a worker gives back as it leaves goes out again after this time; at once, it would come to the request of its own that is still open. */
const GONE_MS = 1000;
/** What it sends off when it leaves need not arrive: the server may be gone. */
const FLUSH_MS = 1000;
const NONE: Weights = { version: -1, digest: '' };

/** Works until `signal` aborts or the run is over; resolves to what it has done. Throws InputError if it is not let in, or is left out. */
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

/** Throws InputError if the controller does not let the worker in. */
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

/** A group that is generated here. */
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

  /** Gives back what it holds. */
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
      if (!this.#connection.isClosed()) message.nak(GONE_MS); // said now: a page that is closed has no later
      aborting.abort();
    }
  }

  /** What a worker that leaves was waiting for fails, and is no failure of it. */
  #fail(error: unknown): void {
    if (!this.#leaving.signal.aborted) this.#failure ??= { error };
    this.#leave();
  }

  /** Takes a group, where there is one within a second or two. */
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
      // Prompt of a controller that died. A resumed one reaches that version again.
      if (prompt.weights.version > this.#weights.version) return message.nak(1000);
      await engine.generate(prompt, key.id, (record) => this.#put(prompt, record, signal), signal);
      message.ack(); // where it is lost, the group comes again, and its samples are there already
      this.#failures = 0;
    } catch (error) {
      if (!this.#connection.isClosed()) message.nak(signal.aborted ? 0 : 1000);
      if (!signal.aborted && ++this.#failures >= MAX_FAILURES) this.#fail(error);
    }
  }

  /** Waits while the room holds as many samples as it may. A sample that is there already is not stored again. */
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

  /** The weights that the room has now. */
  async #catchUp(): Promise<void> {
    const { signal } = this.#leaving;
    const asked = { last_by_subj: stateSubject(STATE.version) };
    while (!signal.aborted) {
      const message = await untilDone(() => this.#parts.jsm.direct.getMessage(stateStream, asked), signal);
      if (message) return this.#follow(read('weights', message.data));
      await pause(1000, signal); // the controller has not put any yet
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
      } else if (this.#wanted === wanted) await pause(200, signal); // a newer one is on its way
    }
  }

  /** Loads the weights that were published while the connection was lost. Ends the worker when its connection is closed. */
  async #watchConnection(): Promise<void> {
    void this.#connection.closed().then((error) => {
      const why = error instanceof Error ? error.message : 'without a reason';
      this.#fail(new InputError(`The room's server has closed the connection (${why}). Join again.`));
    });
    for await (const { type } of this.#connection.status())
      if (type === 'reconnect') void this.#catchUp().catch(() => {}); // a worker that leaves meanwhile needs none
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

/** A controller that goes back to an older checkpoint publishes other weights under a number that it has used before. */
const isSame = (a: Weights, b: Weights): boolean => a.version === b.version && a.digest === b.digest;
