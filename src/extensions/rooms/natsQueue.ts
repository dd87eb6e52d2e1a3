/**
 * The experience queue of one controller, kept on a NATS server as well: what it holds when the controller dies is there when it is opened
 * again. Records are read from memory; each change is on the server before it counts as done.
 */

import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/nats-core';
import { encodedColumns, MemoryQueue } from '../../grpo/queue/memoryQueue.ts';
import type {
  ExperienceQueue,
  ExperienceRecord,
  ListedRecord,
  Partition,
  TakeOptions,
  Where,
} from '../../grpo/queue/types.ts';
import { readFrame, writeFrame } from './frame.ts';
import { token } from './names.ts';

export interface NatsQueueOptions {
  /** Name of its stream: letters, digits, - and _. */
  name?: string;
  /** What it may hold before `put` waits. */
  maxBytes?: number | undefined;
  /** Forgets what an earlier controller has left. */
  fresh?: boolean;
}

export class NatsQueue implements ExperienceQueue {
  readonly #memory: MemoryQueue;
  readonly #js: JetStreamClient;
  readonly #jsm: JetStreamManager;
  readonly #stream: string;
  /** Records are listed in the order of their first put, and those of a stream in that of their last. */
  #puts = 0;
  readonly #firstPut = new Map<string, number>();

  private constructor(memory: MemoryQueue, js: JetStreamClient, jsm: JetStreamManager, stream: string) {
    this.#memory = memory;
    this.#js = js;
    this.#jsm = jsm;
    this.#stream = stream;
  }

  /** Throws MessageError if the stream holds something other than a record. */
  static async open(connection: NatsConnection, options: NatsQueueOptions = {}): Promise<NatsQueue> {
    const { name = 'webgrpo-queue', maxBytes = Infinity, fresh = false } = options;
    const { jetstream, StorageType } = await import('@nats-io/jetstream');
    const js = jetstream(connection);
    const jsm = await js.jetstreamManager();
    // The last message of a subject is the record.
    await jsm.streams.add({ name, subjects: [`${name}.>`], storage: StorageType.File, max_msgs_per_subject: 1 });
    const queue = new NatsQueue(new MemoryQueue({ maxBytes }), js, jsm, name);
    if (fresh) await jsm.streams.purge(name);
    else await queue.#load();
    return queue;
  }

  /** Returns the bytes of all records. */
  get bytes(): number {
    return this.#memory.bytes;
  }

  async put(
    partition: Partition,
    records: readonly ExperienceRecord[],
    options?: { signal?: AbortSignal },
  ): Promise<void> {
    await this.#memory.put(partition, records, options);
    await this.#write(
      partition,
      await this.#memory.get(
        partition,
        records.map(({ key }) => key),
      ),
    );
  }

  get(partition: Partition, keys: readonly string[], columns?: readonly string[]): Promise<ExperienceRecord[]> {
    return this.#memory.get(partition, keys, columns);
  }

  list(partition: Partition, where?: Where): Promise<ListedRecord[]> {
    return this.#memory.list(partition, where);
  }

  async take(partition: Partition, count: number, options: TakeOptions): Promise<ExperienceRecord[]> {
    const taken = await this.#memory.take(partition, count, options);
    await this.#mark(
      partition,
      taken.map(({ key }) => ({ key, consumer: options.consumer })),
    );
    return taken;
  }

  async clear(partition: Partition, keys?: readonly string[]): Promise<void> {
    await this.#memory.clear(partition, keys);
    const all = `${this.#stream}.${token(partition)}`;
    const subjects = keys ? keys.map((key) => this.#subject(partition, key)) : [all];
    const cleared = keys ? subjects : [...this.#firstPut.keys()].filter((subject) => subject.startsWith(`${all}.`));
    for (const subject of cleared) this.#firstPut.delete(subject);
    await Promise.all(subjects.map((subject) => this.#jsm.streams.purge(this.#stream, { filter: `${subject}.>` })));
  }

  save(): Promise<unknown> {
    return this.#memory.save();
  }

  async restore(saved: unknown): Promise<void> {
    await this.#memory.restore(saved);
    await this.#jsm.streams.purge(this.#stream);
    this.#firstPut.clear();
    for (const { partition, records } of (await this.#memory.save()) as SavedPartition[]) {
      const keys = records.map(({ key }) => key);
      await this.#write(partition, await this.#memory.get(partition, keys));
      await this.#mark(
        partition,
        records.flatMap(({ key, consumedBy }) => consumedBy.map((consumer) => ({ key, consumer }))),
      );
    }
  }

  close(): Promise<void> {
    return this.#memory.close();
  }

  /** Publishes in order, and waits for all. */
  async #write(partition: Partition, records: readonly ExperienceRecord[]): Promise<void> {
    await Promise.all(
      records.map((record) => {
        const subject = this.#subject(partition, record.key);
        const first = this.#firstPut.get(subject) ?? this.#puts++;
        this.#firstPut.set(subject, first);
        return this.#js.publish(`${subject}.record`, writeFrame({ partition, first }, record));
      }),
    );
  }

  async #mark(partition: Partition, marks: readonly { key: string; consumer: string }[]): Promise<void> {
    await Promise.all(
      marks.map(({ key, consumer }) =>
        this.#js.publish(`${this.#subject(partition, key)}.by.${token(consumer)}`, consumer),
      ),
    );
  }

  /** What is on the server. */
  async #load(): Promise<void> {
    const { state } = await this.#jsm.streams.info(this.#stream);
    if (state.messages === 0) return;
    const found = new Map<string, { first: number; partition: string; saved: SavedRecord }>();
    const consumers: { subject: string; consumer: string }[] = [];
    const consumer = await this.#js.consumers.get(this.#stream);
    const messages = await consumer.consume();
    for await (const message of messages) {
      const parts = message.subject.split('.');
      const subject = parts.slice(0, 3).join('.');
      if (parts[3] === 'by') consumers.push({ subject, consumer: message.string() });
      else {
        const { more, record } = readFrame(message.data);
        const saved = { ...record, columns: encodedColumns(record.columns), consumedBy: [] };
        found.set(subject, { first: Number(more['first']), partition: String(more['partition']), saved });
      }
      if (message.info.pending === 0) break;
    }
    for (const { subject, consumer: name } of consumers) found.get(subject)?.saved.consumedBy.push(name);
    const partitions = new Map<string, SavedRecord[]>();
    for (const [subject, { first, partition, saved }] of [...found].sort(([, a], [, b]) => a.first - b.first)) {
      this.#firstPut.set(subject, first);
      this.#puts = first + 1;
      partitions.set(partition, [...(partitions.get(partition) ?? []), saved]);
    }
    await this.#memory.restore([...partitions].map(([partition, records]) => ({ partition, records })));
  }

  #subject(partition: Partition, key: string): string {
    return `${this.#stream}.${token(partition)}.${token(key)}`;
  }
}

interface SavedRecord {
  key: string;
  tags: ExperienceRecord['tags'];
  consumedBy: string[];
  columns: Record<string, unknown>;
}

interface SavedPartition {
  partition: string;
  records: SavedRecord[];
}
