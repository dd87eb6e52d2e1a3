/**
 * Rollout by the workers of a room. Groups are published to a work queue; samples are received, checked and put into the experience queue.
 * A group is done when each of its samples was put once, whichever worker sent it and however often. A group is published again if it was
 * lost, by its worker or by the server, or if one of its samples was rejected.
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
import { type ExperienceRecord, uidOf } from '../../grpo/queue/types.ts';
import { pause, pull, untilDone } from './connect.ts';
import { MessageError } from './frame.ts';
import { readSample, write } from './messages.ts';
import { PROMPTS, SAMPLES } from './names.ts';
import type { RoomHost } from './roomHost.ts';
import { signedBy } from './tickets.ts';

/**
 * Checks a sample. Returns the reason for a rejection in a few words, under which it is counted, or the record to train on. Undefined
 * accepts the record unchanged.
 */
export type CheckSample = (record: ExperienceRecord, worker: string, group: PromptGroup) => Promise<Checked> | Checked;
type Checked = string | ExperienceRecord | undefined;

/** Reason for a rejection: the weights of the sample were dropped. Such samples are counted and generated again; they are not forgeries. */
export const TOO_OLD = 'too old';

export interface NatsRollouterOptions {
  /** Number of samples of a group: `rollout.n`. */
  n: number;
  check: CheckSample;
  put: PutRecords;
  /** Returns the trained weights as a file for workers. */
  exportWeights(version: number): Promise<Uint8Array>;
  /**
   * Number of samples that are checked or wait for space concurrently. If `put` takes groups in order, this must be the number of samples
   * in flight. Otherwise the samples that wait could block the first group's. Default: 64.
   */
  handledAtOnce?: number;
  /** Rejects if the step that waits for samples is cancelled. */
  cancelled?: Promise<never>;
  /** Called when the group has ended: none of its samples is checked any longer. */
  onEnd?(uid: string): void;
  /** Returns additional metrics of a step. */
  metrics?(): Metrics;
}

type Begun = Pick<PromptGroup, 'step' | 'number'>;
const isAfter = (a: Begun, b: Begun): boolean => a.step > b.step || (a.step === b.step && a.number > b.number);

interface Outstanding {
  group: PromptGroup;
  /** Samples that are in the queue or being put. */
  samples: Set<number>;
  put: number;
  /** Ticket in the group's last message. */
  ticket?: string;
}

/** Number of times that samples of a group that was not started are delayed before they are dropped. */
const PUT_OFF = 60;
const PUT_OFF_MS = 2000;
/** NATS error codes: maximum messages per subject exceeded; no message found, sequence not found, message not deleted. */
const GIVEN_ALREADY = 10_077;
const GONE_MEANWHILE = [10_037, 10_043, 10_057];

/** Rollouter that publishes groups to the workers of a room and receives their samples. */
export class NatsRollouter implements Rollouter {
  readonly #host: RoomHost;
  readonly #options: NatsRollouterOptions;
  readonly #groups = new Map<string, Outstanding>();
  /** The newest started group, by step and number. Earlier groups that are not in flight have ended. */
  #newest: Begun = { step: -1, number: -1 };
  readonly #handled = new Map<JsMsg, Promise<void>>();
  #life = new Life();

  constructor(host: RoomHost, options: NatsRollouterOptions) {
    this.#host = host;
    this.#options = options;
  }

  get failed(): Promise<never> {
    const { cancelled } = this.#options;
    return cancelled ? Promise.race([cancelled, this.#life.failed]) : this.#life.failed;
  }

  /** Starts groups. Those that an earlier controller published are not published again. */
  async start(groups: readonly PromptGroup[]): Promise<void> {
    await Promise.all(
      groups.map(async (group) => {
        const uid = uidOfGroup(group);
        if (isAfter(group, this.#newest)) this.#newest = group;
        const outstanding: Outstanding = { group, samples: new Set(), put: 0 };
        this.#groups.set(uid, outstanding);
        await this.#unlessCancelled(this.#publish(outstanding));
      }),
    );
    this.#life.running ??= this.#run(this.#life);
  }

  async updateWeights(version: number): Promise<WeightTransfer> {
    const started = performance.now();
    const bytes = await this.#options.exportWeights(version);
    await this.#unlessCancelled(untilDone(() => this.#host.publishWeights(version, bytes), this.#life.ending.signal));
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
    return { 'room/workers': here.length, ...rejected, ...this.#options.metrics?.() };
  }

  async close(): Promise<void> {
    await this.detach();
    this.#life = new Life();
    const aborted = [...this.#groups.keys()].filter((uid) => this.#end(uid));
    const { connection } = this.#host;
    if (aborted.length === 0 || connection.isClosed()) return;
    this.#host.notify({ aborted });
    const gone = new AbortController();
    void connection.closed().then(() => gone.abort());
    await Promise.all(aborted.map((uid) => this.#withdraw(uid, gone.signal))).catch((error: unknown) => {
      if (!gone.signal.aborted) throw error; // if the connection is closed, a resumed controller withdraws them
    });
  }

  /** Stops this controller. Groups and samples stay on the server for a controller that resumes. */
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
      await this.#sweep();
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
        const handling = this.#handle(message)
          .catch(this.#life.fail)
          .finally(() => this.#handled.delete(message));
        this.#handled.set(message, handling);
      });
    }
  }

  async #handle(message: JsMsg): Promise<void> {
    const worker = SAMPLES.workerOf(message.subject);
    const counts = this.#host.countsOf(worker);
    const sample = await this.#readSample(message, worker);
    if (!sample) return message.ack();
    const { key, ticket, record } = sample;
    const uid = uidOf(key);
    const outstanding = this.#groups.get(uid);
    if (!outstanding && !this.#isOver(uid) && message.info.deliveryCount < PUT_OFF) return message.nak(PUT_OFF_MS);
    if (!outstanding || counts.leftOut || outstanding.samples.has(sample.index)) {
      counts.duplicates++;
      return message.ack();
    }
    outstanding.samples.add(sample.index);
    const checked = await this.#options.check(record, worker, outstanding.group);
    if (this.#groups.get(uid) !== outstanding) return message.ack(); // ended during the check
    if (typeof checked === 'string') {
      outstanding.samples.delete(sample.index);
      await this.#reject(worker, checked, outstanding, ticket);
      return message.ack();
    }
    await this.#options.put([checked ?? record]);
    counts.accepted++;
    outstanding.put++;
    if (outstanding.put === this.#options.n) {
      this.#end(uid);
      await this.#withdraw(uid);
    }
    message.ack();
  }

  /** Returns the sample; undefined if it is refused, which is counted. */
  async #readSample(message: JsMsg, worker: string) {
    try {
      const { ticket, record } = readSample(await signedBy(worker, message.data));
      const uid = uidOf(record.key);
      const index = Number(record.key.slice(uid.length + 1));
      if (!(await this.#host.tickets.isOf(uid, ticket)))
        throw new MessageError('ticket', `The sample "${record.key}" belongs to no open group.`);
      if (!Number.isInteger(index) || index < 0 || index >= this.#options.n || record.key !== `${uid}_${index}`)
        throw new MessageError('malformed', `The key "${record.key}" does not name a sample.`);
      return { key: record.key, index, ticket, record: { ...record, tags: { ...record.tags, worker } } };
    } catch (error) {
      if (!(error instanceof MessageError)) throw error;
      this.#host.countsOf(worker).refused[error.refusal]++;
      return undefined;
    }
  }

  async #reject(worker: string, why: string, outstanding: Outstanding, ticket: string): Promise<void> {
    const { rejected } = this.#host.countsOf(worker);
    rejected[why] = (rejected[why] ?? 0) + 1;
    if (why !== TOO_OLD) this.#host.leaveOut(worker, `a sample of it was rejected: ${why}`);
    // Once per message: the other samples of the message are mostly rejected too.
    if (outstanding.ticket === undefined || outstanding.ticket === ticket) await this.#republish(outstanding);
  }

  async #republish(outstanding: Outstanding): Promise<void> {
    await this.#withdraw(uidOfGroup(outstanding.group));
    await this.#publish(outstanding);
  }

  async #publish(outstanding: Outstanding): Promise<void> {
    const { number, index, problem, step } = outstanding.group;
    const uid = uidOfGroup(outstanding.group);
    const ticket = await this.#host.tickets.give(uid);
    const which = { number, step, weights: this.#host.published, ...(index !== undefined && { index }) };
    const prompt = write('prompt', { uid, ticket, n: this.#options.n, ...which, problem });
    await untilDone(async () => {
      try {
        await this.#host.js.publish(PROMPTS.subjectOf(uid), prompt);
        outstanding.ticket = ticket;
      } catch (error) {
        if ((error as { code?: number }).code !== GIVEN_ALREADY) throw error;
      }
    }, this.#life.ending.signal);
  }

  /**
   * Deletes the group's message if it still exists. A purge would make the server's consumer skip other messages, or forget which ones are
   * held.
   */
  async #withdraw(uid: string, signal = this.#life.ending.signal): Promise<void> {
    const { streams } = this.#host.jsm;
    await untilDone(async () => {
      const message = await streams.getMessage(PROMPTS.stream, { last_by_subj: PROMPTS.subjectOf(uid) });
      if (!message) return;
      await streams.deleteMessage(PROMPTS.stream, message.seq, false).catch((error: unknown) => {
        if (!GONE_MEANWHILE.includes((error as { code?: number }).code ?? 0)) throw error;
      });
    }, signal);
  }

  /** Publishes groups again that no worker holds and whose samples are not on their way. */
  async #sweep(): Promise<void> {
    const { streams } = this.#host.jsm;
    const before = [...this.#groups.values()];
    await this.#host.consumers.check();
    // Read in this order: a worker acknowledges a group after its samples are stored, and a sample is put before it is acknowledged.
    const prompts = await streams.info(PROMPTS.stream, { subjects_filter: '>' });
    const samples = await streams.info(SAMPLES.stream, { subjects_filter: '>' });
    const [given = {}, stored = {}] = [prompts.state.subjects, samples.state.subjects];
    const back = new Set(Object.keys(stored).map((subject) => subject.split('.').slice(3).join('.')));
    for (const outstanding of before) {
      const uid = uidOfGroup(outstanding.group);
      const subject = PROMPTS.subjectOf(uid);
      const isLost = !(subject in given) && !back.has(subject.split('.').slice(2).join('.'));
      if (isLost && this.#groups.get(uid) === outstanding) await this.#publish(outstanding);
    }
    // A server that crashed can restore deleted messages.
    for (const uid of Object.keys(given).map(PROMPTS.uidOf)) if (this.#isOver(uid)) await this.#withdraw(uid);
  }

  /** True if the group has ended, also if an earlier controller ended it. */
  #isOver(uid: string): boolean {
    const [step, number] = uid.split('.').map(Number);
    return !this.#groups.has(uid) && !isAfter({ step, number }, this.#newest);
  }

  /** Ends a group. Returns true if it was in flight. */
  #end(uid: string): boolean {
    this.#options.onEnd?.(uid);
    return this.#groups.delete(uid);
  }
}

/** State between the start and the next `close`. */
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
