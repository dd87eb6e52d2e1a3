/** A room without a GPU: workers that send invented samples, and a trainer that only counts them. */

import { setTimeout as sleep } from 'node:timers/promises';
import type { NatsConnection } from '@nats-io/nats-core';
import { type PromptGroup, uidOfGroup } from '../src/grpo/pipeline/types.ts';
import { ExperienceQueue } from '../src/extensions/pipelines/experienceQueue.ts';
import { type ExperienceRecord, uidOf } from '../src/grpo/pipeline/record.ts';
import { joinRoom, type JoinOptions, type RoomEngine } from '../src/extensions/rooms/joinRoom.ts';
import { SAMPLES } from '../src/extensions/rooms/names.ts';
import { NatsRollouter, type NatsRollouterOptions } from '../src/extensions/rooms/natsRollouter.ts';
import { RoomHost, type RoomOptions } from '../src/extensions/rooms/roomHost.ts';
import { connectByTcp, type TestRoom } from './natsServer.ts';

export const groupOf = (number: number): PromptGroup => ({
  ...{ number, step: 1 },
  problem: { id: `p${number}`, messages: [{ role: 'user', content: `${number}?` }], answer: String(number) },
});

/** Returns the sample that an honest worker sends for a group. The check of this room treats any other text as forged. */
export const madeUp = (uid: string, sample: number, tokens = 8): ExperienceRecord => ({
  key: `${uid}_${sample}`,
  tags: { status: 'scored' },
  columns: { response: new Uint32Array(tokens).fill(sample), reward: 1, sample: `answer of ${uid}` },
});

const checkMadeUp: NatsRollouterOptions['check'] = ({ columns }, _, group) =>
  columns['sample'] === `answer of ${uidOfGroup(group)}` ? undefined : 'tokens';

export interface FakeWorker {
  /** Resolves to the worker's counts, or rejects with the reason for its end. */
  ended: Promise<unknown>;
  leave(): void;
  /** Ends the worker's connection as a crash would, without returning its groups. */
  kill(): Promise<void>;
  /** Ids of the groups that the worker received. `generated`: those that it has finished. */
  started: string[];
  generated: string[];
  /** Versions of the weights that the worker loaded. `files`: the first byte of each. `drawnBy`: the version at the start of each group. */
  versions: number[];
  files: number[];
  drawnBy: number[];
}

interface FakeOptions {
  name?: string;
  /** Maximum number of milliseconds to generate a group. */
  ms?: number;
  /** Milliseconds that loading new weights takes. */
  loadMs?: number;
  tokens?: number;
  groupsAtOnce?: number;
  generate?: RoomEngine['generate'];
}

export function fakeWorker(room: Pick<TestRoom, 'address' | 'code'>, options: FakeOptions = {}): FakeWorker {
  const { name = 'fake', ms = 20, loadMs = 0, tokens = 8, groupsAtOnce = 2, generate } = options;
  const leaving = new AbortController();
  const connections: NatsConnection[] = [];
  const [started, generated]: [string[], string[]] = [[], []];
  const [versions, files, drawnBy]: [number[], number[], number[]] = [[], [], []];
  const engine: RoomEngine = {
    ...{ adapter: 'none', groupsAtOnce, destroy: () => {} },
    useWeights: async (version, file) => {
      await sleep(loadMs);
      files.push(file[0]);
      versions.push(version);
    },
    generate:
      generate ??
      (async ({ uid, n }, _, put, signal) => {
        started.push(uid);
        drawnBy.push(versions.at(-1)!);
        await sleep(Math.random() * ms, undefined, { signal });
        for (let s = 0; s < n; s++) await put(madeUp(uid, s, tokens));
        generated.push(uid);
      }),
  };
  const connect: JoinOptions['connect'] = async (asked) => {
    const connection = await connectByTcp(asked);
    connections.push(connection);
    return connection;
  };
  const { address, code } = room;
  const joining = { connect, address, code, name, open: async () => engine, signal: leaving.signal };
  return {
    ...{ started, generated, versions, files, drawnBy },
    ended: joinRoom(joining).catch((error: unknown) => error),
    leave: () => leaving.abort(),
    kill: async () => void (await connections.at(-1)?.close()),
  };
}

/** Checkpoint of the counting trainer: ids of trained groups, and the number of started groups. */
export interface Saved {
  trained: string[];
  begun: number;
}

const TICK_MS = 20;

export interface ControllerOptions extends Omit<Partial<RoomOptions>, 'now'> {
  n?: number;
  /** Number of groups per step. `ahead`: number of groups started ahead of training. */
  batch?: number;
  ahead?: number;
  maxBytes?: number;
  check?: NatsRollouterOptions['check'];
  /** Maximum age of a group, in weight syncs. */
  maxAge?: number;
  /** Share of groups that a second worker generates as well. */
  secondShare?: number;
  /** First byte of the weights. */
  weights?: number;
  /** Called after each trained group with their number. */
  onTrained?: (trained: number) => Promise<void>;
}

/** A controller with a trainer that only counts. `saved` is a checkpoint to resume from. */
export class Controller {
  readonly host: RoomHost;
  readonly rollouter: NatsRollouter;
  readonly queue: ExperienceQueue;
  readonly saved: Saved;
  /**
   * Clock of the leases. The clock counts ticks of a timer in this process. If the machine is slow, the ticks are late, and so are the
   * workers' heartbeats. So no worker counts as silent because the machine is slow. A test can move the clock forward.
   */
  readonly clock: { ms: number };
  readonly #ticking: ReturnType<typeof setInterval>;
  readonly #options: Required<Pick<ControllerOptions, 'n' | 'batch' | 'ahead' | 'onTrained'>>;
  readonly #connection: NatsConnection;
  readonly #killed = new AbortController();

  private constructor(
    connection: NatsConnection,
    host: RoomHost,
    saved: Saved,
    options: ControllerOptions,
    clock: { ms: number },
  ) {
    const {
      n = 4,
      batch = 2,
      ahead = 8,
      maxBytes = Infinity,
      check = checkMadeUp,
      onTrained = async () => {},
    } = options;
    this.#connection = connection;
    this.#options = { n, batch, ahead, onTrained };
    this.host = host;
    this.saved = saved;
    this.clock = clock;
    this.#ticking = setInterval(() => (clock.ms += TICK_MS), TICK_MS);
    this.queue = new ExperienceQueue({ maxBytes });
    this.rollouter = new NatsRollouter(host, {
      ...{ n, check, put: (records) => this.queue.put(records, this.#killed.signal) },
      ...(options.maxAge !== undefined && { maxAge: options.maxAge }),
      secondShare: options.secondShare ?? 0,
      exportWeights: async () => Uint8Array.of(options.weights ?? 1, 2, 3),
    });
  }

  static async open(
    room: Pick<TestRoom, 'connect'>,
    saved: Saved,
    options: ControllerOptions = {},
  ): Promise<Controller> {
    const connection = await room.connect();
    const clock = { ms: 0 };
    const now = () => clock.ms;
    const host = await RoomHost.open(connection, {
      ...{ config: { name: 'test' }, ackWaitMs: 700, resume: saved.begun > 0, now, ...options },
    });
    return new Controller(connection, host, saved, options, clock);
  }

  /** Trains until `count` groups are trained. Rejects if the controller is killed. */
  async train(count: number): Promise<void> {
    const { n, batch, ahead, onTrained } = this.#options;
    const { saved } = this;
    await this.rollouter.updateWeights(saved.trained.length);
    const under = Array.from({ length: saved.begun }, (_, i) => groupOf(i));
    await this.rollouter.start(under.filter((group) => !saved.trained.includes(uidOfGroup(group))));
    while (saved.trained.length < count) {
      const more = Math.min(count, saved.trained.length + ahead) - saved.begun;
      const begun = Array.from({ length: Math.max(0, more) }, (_, i) => groupOf(saved.begun + i));
      await this.rollouter.start(begun);
      saved.begun += begun.length;
      for (let left = Math.min(batch, count - saved.trained.length); left > 0; left--) {
        const taking = this.queue.takeGroup(n, this.#killed.signal);
        const records = await Promise.race([taking, this.rollouter.failed]);
        saved.trained.push(uidOf(records[0].key));
        await onTrained(saved.trained.length);
      }
    }
  }

  get isKilled(): boolean {
    return this.#killed.signal.aborted;
  }

  /** Describes the state of controller, queue and workers, to debug a room that does not continue. */
  async describe(): Promise<string> {
    const { jsm } = this.host;
    const stored = async ({ stream, consumer }: { stream: string; consumer: string }) => {
      const { state } = await jsm.streams.info(stream, { subjects_filter: '>' });
      const { delivered, num_ack_pending: awaited } = await jsm.consumers.info(stream, consumer);
      return { first: state.first_seq, subjects: state.subjects, delivered: delivered.stream_seq, awaited };
    };
    const samples = await stored(SAMPLES).catch((error: unknown) => String(error));
    const queued = this.queue.keys;
    const { trained, begun } = this.saved;
    return JSON.stringify({ trained, begun, isKilled: this.isKilled, queued, samples }, undefined, 1);
  }

  /** Kills the controller: everything in its memory is lost. */
  async kill(): Promise<void> {
    this.#killed.abort(new Error('killed'));
    clearInterval(this.#ticking);
    await Promise.all([this.#connection.close(), this.rollouter.detach()]);
  }

  async close(): Promise<void> {
    clearInterval(this.#ticking);
    await this.rollouter.close();
    await this.#connection.close();
  }
}
