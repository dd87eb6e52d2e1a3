/** The experience queue inside one thread: records are kept as they are given, and nothing is copied. */

import * as v from 'valibot';
import { InputError } from '../../errors.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { fromBase64, toBase64 } from '../generate/sampleCodec.ts';
import {
  bytesOf,
  type Column,
  type ExperienceQueue,
  type ExperienceRecord,
  type ListedRecord,
  matches,
  type Partition,
  type TakeOptions,
  uidOf,
  type Where,
} from './types.ts';

interface Kept {
  record: ExperienceRecord;
  bytes: number;
  consumedBy: Set<string>;
}

/** A waiter: it retries at each change, and ends when it succeeds. */
interface Waiting {
  kind: 'put' | 'take';
  attempt(): boolean;
  reject(reason: unknown): void;
}

export class MemoryQueue implements ExperienceQueue {
  /** Bytes of all records. */
  bytes = 0;
  readonly #maxBytes: number;
  readonly #partitions = new Map<Partition, Map<string, Kept>>();
  #waiting: Waiting[] = [];
  #closed = false;

  /** @param maxBytes what it may hold before `put` waits */
  constructor({ maxBytes = Infinity }: { maxBytes?: number } = {}) {
    this.#maxBytes = maxBytes;
  }

  async put(
    partition: Partition,
    records: readonly ExperienceRecord[],
    { signal }: { signal?: AbortSignal } = {},
  ): Promise<void> {
    const bytes = records.reduce((sum, record) => sum + bytesOf(record), 0);
    if (bytes > this.#maxBytes)
      throw new RangeError(
        `The experience queue may hold ${this.#maxBytes} bytes, and was given ${bytes} at once; give fewer records or allow more.`,
      );
    await this.#when('put', signal, () => {
      if (this.bytes + bytes > this.#maxBytes) return undefined;
      const kept = this.#partition(partition);
      for (const record of records) this.#add(kept, record);
      return true;
    });
  }

  async get(partition: Partition, keys: readonly string[], columns?: readonly string[]): Promise<ExperienceRecord[]> {
    const kept = this.#partition(partition);
    return keys.map((key) => {
      const found = kept.get(key);
      if (found) return chosen(found.record, columns);
      throw new RangeError(`The partition "${partition}" of the experience queue has no record "${key}".`);
    });
  }

  async list(partition: Partition, where?: Where): Promise<ListedRecord[]> {
    return [...this.#partition(partition).values()]
      .filter(({ record }) => matches(record.tags, where))
      .map(({ record: { key, tags }, consumedBy }) => ({ key, tags, consumedBy: [...consumedBy] }));
  }

  take(partition: Partition, count: number, options: TakeOptions): Promise<ExperienceRecord[]> {
    return this.#when('take', options.signal, () => {
      const found = this.#available(partition, count, options);
      found?.forEach(({ consumedBy }) => consumedBy.add(options.consumer));
      return found?.map(({ record }) => chosen(record, options.columns));
    });
  }

  async clear(partition: Partition, keys?: readonly string[]): Promise<void> {
    const kept = this.#partition(partition);
    for (const key of keys ?? [...kept.keys()]) {
      this.bytes -= kept.get(key)?.bytes ?? 0;
      kept.delete(key);
    }
    this.#changed();
  }

  async save(): Promise<unknown> {
    return [...this.#partitions].map(([partition, kept]) => ({
      partition,
      records: Array.from(kept.values(), ({ record: { key, columns, tags }, consumedBy }) => ({
        ...{ key, tags, consumedBy: [...consumedBy] },
        columns: encodedColumns(columns),
      })),
    }));
  }

  async restore(saved: unknown): Promise<void> {
    const result = v.safeParse(SAVED, saved);
    if (!result.success) {
      const [{ path = [], message }] = result.issues;
      const place = path.map(({ key }) => String(key)).join('.');
      throw new InputError(`The saved experience queue cannot be read: ${place}: ${message}.`);
    }
    this.#partitions.clear();
    this.bytes = 0;
    for (const { partition, records } of result.output)
      for (const { consumedBy, ...record } of records) {
        const kept = this.#partition(partition);
        this.#add(kept, record);
        for (const consumer of consumedBy) kept.get(record.key)!.consumedBy.add(consumer);
      }
    this.#changed();
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(new Error(CLOSED));
  }

  #partition(name: Partition): Map<string, Kept> {
    const kept = this.#partitions.get(name) ?? new Map<string, Kept>();
    this.#partitions.set(name, kept);
    return kept;
  }

  #add(kept: Map<string, Kept>, record: ExperienceRecord): void {
    const old = kept.get(record.key);
    const columns = { ...old?.record.columns, ...record.columns };
    const whole = { key: record.key, columns, tags: { ...old?.record.tags, ...record.tags } };
    const bytes = bytesOf(whole);
    this.bytes += bytes - (old?.bytes ?? 0);
    kept.set(record.key, { record: whole, bytes, consumedBy: old?.consumedBy ?? new Set() });
  }

  #available(partition: Partition, count: number, { consumer, where, groupSize }: TakeOptions): Kept[] | undefined {
    const free = [...this.#partition(partition).values()].filter(
      ({ record, consumedBy }) => !consumedBy.has(consumer) && matches(record.tags, where),
    );
    if (groupSize === undefined) return free.length >= count ? free.slice(0, count) : undefined;
    const groups = new Map<string, Kept[]>();
    for (const one of free) {
      const uid = uidOf(one.record.key);
      groups.set(uid, [...(groups.get(uid) ?? []), one]);
    }
    const whole = [...groups.values()].filter(({ length }) => length >= groupSize);
    return whole.length >= count ? whole.slice(0, count).flat() : undefined;
  }

  /** What `attempt` gives once it gives something: now, or after a change that lets it. */
  #when<T>(kind: Waiting['kind'], signal: AbortSignal | undefined, attempt: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new Error(CLOSED));
      if (signal?.aborted) return reject(signal.reason as Error);
      let unlink = () => {};
      const waiting: Waiting = {
        ...{ kind, reject },
        attempt: () => {
          const result = attempt();
          if (result === undefined) return false;
          unlink();
          resolve(result);
          return true;
        },
      };
      const leave = () => {
        this.#waiting = this.#waiting.filter((other) => other !== waiting);
        reject(signal!.reason as Error);
      };
      if (signal) unlink = onAbort(signal, leave);
      this.#waiting.push(waiting);
      this.#changed();
    });
  }

  /** Serves the waiters in order of arrival until none can be served. A small put does not overtake a large one. */
  #changed(): void {
    for (let served = true; served;) {
      const firstPut = this.#waiting.find(({ kind }) => kind === 'put');
      const next = this.#waiting.find(
        (waiting) => (waiting.kind === 'take' || waiting === firstPut) && waiting.attempt(),
      );
      served = next !== undefined;
      if (next) this.#waiting = this.#waiting.filter((other) => other !== next);
    }
  }
}

const CLOSED = 'The experience queue was closed.';

const chosen = ({ key, columns, tags }: ExperienceRecord, names?: readonly string[]): ExperienceRecord => ({
  ...{ key, tags },
  columns: names
    ? Object.fromEntries(names.filter((name) => name in columns).map((name) => [name, columns[name]]))
    : columns,
});

const ARRAYS = { u32: Uint32Array, f32: Float32Array, u8: Uint8Array };

/** Columns as `save` writes them. */
export const encodedColumns = (columns: ExperienceRecord['columns']): Record<string, unknown> =>
  Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, encoded(column)]));

function encoded(column: Column): unknown {
  if (typeof column !== 'object') return column;
  const type = Object.entries(ARRAYS).find(([, Numbers]) => column instanceof Numbers)![0];
  return { type, base64: toBase64(column) };
}

const array = v.pipe(
  v.object({ type: v.picklist(['u32', 'f32', 'u8']), base64: v.string() }),
  v.rawTransform<{ type: keyof typeof ARRAYS; base64: string }, Column>(({ dataset, addIssue, NEVER }) => {
    const { type, base64 } = dataset.value;
    try {
      return new ARRAYS[type](fromBase64(base64).buffer);
    } catch {
      addIssue({ message: `it is no base64 of ${type} numbers` });
      return NEVER;
    }
  }),
);
const value = v.union([v.string(), v.number(), v.boolean()]);
const record = v.object({
  key: v.string(),
  tags: v.record(v.string(), value),
  consumedBy: v.array(v.string()),
  columns: v.record(v.string(), v.union([value, array])),
});
const SAVED = v.array(v.object({ partition: v.string(), records: v.array(record) }));
