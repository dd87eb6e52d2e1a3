/**
 * Rollout by the workers of a room: groups go out as messages of a work queue, samples come back, are checked and put into the experience
 * queue. A group is done when each of its samples was put once, by any worker and any number of times. One that is lost (its worker
 * acknowledged it without samples, the server lost it) or of which a sample was rejected is published again.
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
 * Why a sample is not accepted, in a few words that it is counted by; else the record that is trained on in its place, undefined = as it
 * came.
 */
export type CheckSample = (record: ExperienceRecord, worker: string, group: PromptGroup) => Promise<Checked> | Checked;
type Checked = string | ExperienceRecord | undefined;

/** A sample by weights that are gone: counted, and generated again, but no forgery. */
export const TOO_OLD = 'too old';

export interface NatsRollouterOptions {
  /** Samples of a group: `rollout.n`. */
  n: number;
  check: CheckSample;
  put: PutRecords;
  /** The trained weights as a file that workers read. */
  exportWeights(version: number): Promise<Uint8Array>;
  /**
   * Samples that are checked or wait for room at once. Where `put` takes groups in order it has to be as many as are in flight, or those that
   * wait for the first group would leave it no place. Absent = 64.
   */
  handledAtOnce?: number;
  /** Rejects if the step that waits for samples is cancelled. */
  cancelled?: Promise<never>;
  /** The group is over: no sample of it is checked any more. */
  onEnd?(uid: string): void;
  /** More metrics of a step. */
  metrics?(): Metrics;
}

type Begun = Pick<PromptGroup, 'step' | 'number'>;
const isAfter = (a: Begun, b: Begun): boolean => a.step > b.step || (a.step === b.step && a.number > b.number);

interface Outstanding {
  group: PromptGroup;
  /** Samples that are in the queue, or on their way into it. */
  samples: Set<number>;
  put: number;
  /** Ticket in its last message. */
  ticket?: string;
}

/** Number of times that samples of a group that was not started are delayed before they are dropped. */
const PUT_OFF = 60;
const PUT_OFF_MS = 2000;
/** NATS's codes: maximum messages per subject exceeded; no message found, sequence not found, message not deleted. */
const GIVEN_ALREADY = 10_077;
const GONE_MEANWHILE = [10_037, 10_043, 10_057];

export class NatsRollouter implements Rollouter {
  readonly #host: RoomHost;
  readonly #options: NatsRollouterOptions;
  readonly #groups = new Map<string, Outstanding>();
  /** Newest started group, by step and number: groups up to it that are not in flight have ended. */
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

  /** Groups that an earlier controller has published are not published again. */
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

  /** Waits for the server no longer than for samples. */
  #unlessCancelled<T>(work: Promise<T>): Promise<T> {
    const { cancelled } = this.#options;
    if (!cancelled) return work;
    work.catch(() => {}); // it ends with this controller's life, when nobody waits for it any more
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
      if (!gone.signal.aborted) throw error; // where nobody can take them back, a controller that goes on does
    });
  }

  /** Ends this controller alone: groups and samples stay on the server, for one that continues. */
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
    if (this.#groups.get(uid) !== outstanding) return message.ack(); // aborted meanwhile
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

  /** Undefined if it is refused, which is counted. */
  async #readSample(message: JsMsg, worker: string) {
    try {
      const { ticket, record } = readSample(await signedBy(worker, message.data));
      const uid = uidOf(record.key);
      const index = Number(record.key.slice(uid.length + 1));
      if (!(await this.#host.tickets.isOf(uid, ticket)))
        throw new MessageError('ticket', `The sample "${record.key}" is of no group that was given out.`);
      if (!Number.isInteger(index) || index < 0 || index >= this.#options.n || record.key !== `${uid}_${index}`)
        throw new MessageError('malformed', `The key "${record.key}" is of no sample.`);
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
    // Once a message: its other samples are rejected as well, mostly.
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

  /** Takes its message back, where it is there still. A purge would make the server's consumer skip others, or forget which are held. */
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

  /** Publishes again what is neither with a worker nor on its way back. */
  async #sweep(): Promise<void> {
    const { streams } = this.#host.jsm;
    const before = [...this.#groups.values()];
    await this.#host.consumers.check();
    // In this order: a worker acknowledges a group when its samples are stored, and they are put before they are acknowledged.
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
    // A server that crashed may bring back what was taken from it.
    for (const uid of Object.keys(given).map(PROMPTS.uidOf)) if (this.#isOver(uid)) await this.#withdraw(uid);
  }

  /** Also where an earlier controller saw the end of it. */
  #isOver(uid: string): boolean {
    const [step, number] = uid.split('.').map(Number);
    return !this.#groups.has(uid) && !isAfter({ step, number }, this.#newest);
  }

  /** True if it was in flight. */
  #end(uid: string): boolean {
    this.#options.onEnd?.(uid);
    return this.#groups.delete(uid);
  }
}

/** From one `close` to the next. */
class Life {
  readonly ending = new AbortController();
  readonly failed: Promise<never>;
  readonly fail: (error: unknown) => void;
  running: Promise<void> | undefined;

  constructor() {
    let reject = (_: unknown): void => {};
    this.failed = new Promise<never>((_, no) => (reject = no));
    this.failed.catch(() => {}); // it may come before anybody waits for it
    this.fail = (error) => void (this.ending.signal.aborted || reject(error));
  }
}
