/** Experience queue between rollout and the trainer. It holds the samples' own arrays and copies nothing. */

import * as v from 'valibot';
import { InputError } from '../../errors.ts';
import { onAbort } from '../../rollout/tools/onAbort.ts';
import { fromBase64, toBase64 } from './sampleCodec.ts';
import { bytesOf, type Column, type ExperienceRecord, uidOf } from '../../grpo/pipeline/record.ts';

/** A waiting call of `put` or `take`: it retries whenever the queue changes, and is removed when it succeeds. */
interface Waiting {
  kind: 'put' | 'take';
  attempt(): boolean;
}

/** Holds scored samples, at most `maxBytes`, until the trainer takes their group. */
export class ExperienceQueue {
  /** Bytes of all records. */
  bytes = 0;
  readonly #maxBytes: number;
  readonly #records = new Map<string, ExperienceRecord>();
  #waiting: Waiting[] = [];

  /** @param options maxBytes = bytes above which `put` waits; default: no limit */
  constructor({ maxBytes = Infinity }: { maxBytes?: number } = {}) {
    this.#maxBytes = maxBytes;
  }

  /** Keys of all records, in the order in which the records were put. */
  get keys(): string[] {
    return [...this.#records.keys()];
  }

  /**
   * Adds all records in one step; waits until they fit. Rejects with the signal's reason if the signal aborts. Throws
   * RangeError for records that would not fit into an empty queue.
   */
  async put(records: readonly ExperienceRecord[], signal?: AbortSignal): Promise<void> {
    const bytes = records.reduce((sum, record) => sum + bytesOf(record), 0);
    if (bytes > this.#maxBytes)
      throw new RangeError(
        `The experience queue can hold ${this.#maxBytes} bytes, but was given ${bytes} at once. Raise asyncTraining.queueMib (maxBytes of an ExperienceQueue), or shorten the samples.`,
      );
    await this.#when('put', signal, () => {
      if (this.bytes + bytes > this.#maxBytes) return undefined;
      this.#add(records);
      return true;
    });
  }

  /**
   * Removes and returns the oldest complete group (`groupSize` records), with its records in the order in which they
   * were put. Waits until a group is complete. Rejects with the signal's reason if the signal aborts.
   */
  takeGroup(groupSize: number, signal?: AbortSignal): Promise<ExperienceRecord[]> {
    return this.#when('take', signal, () => {
      const groups = new Map<string, ExperienceRecord[]>();
      for (const record of this.#records.values()) {
        const uid = uidOf(record.key);
        groups.set(uid, [...(groups.get(uid) ?? []), record]);
      }
      const group = [...groups.values()].find(({ length }) => length >= groupSize);
      if (group) this.#remove(group);
      return group;
    });
  }

  /** Removes all records. */
  clear(): void {
    this.#remove([...this.#records.values()]);
    this.#changed();
  }

  /** Returns all records as plain JSON, for a checkpoint. */
  save(): unknown {
    const records = Array.from(this.#records.values(), ({ key, columns, tags }) => ({
      ...{ key, tags, consumedBy: [] },
      columns: Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, encoded(column)])),
    }));
    return [{ partition: 'train', records }];
  }

  /** Replaces all records by the saved ones. Throws InputError if the state cannot be read. */
  restore(saved: unknown): void {
    const result = v.safeParse(SAVED, saved);
    if (!result.success) {
      const [{ path = [], message }] = result.issues;
      const place = path.map(({ key }) => String(key)).join('.');
      throw new InputError(`The saved experience queue cannot be read: ${place}: ${message}.`);
    }
    this.#remove([...this.#records.values()]);
    this.#add(result.output.flatMap(({ records }) => records));
    this.#changed();
  }

  #add(records: readonly ExperienceRecord[]): void {
    for (const record of records) {
      const old = this.#records.get(record.key);
      this.bytes += bytesOf(record) - (old ? bytesOf(old) : 0);
      this.#records.set(record.key, record);
    }
  }

  #remove(records: readonly ExperienceRecord[]): void {
    for (const record of records) {
      this.bytes -= bytesOf(record);
      this.#records.delete(record.key);
    }
  }

  /** Resolves to the first defined result of `attempt`, which is called now and after each change of the queue. */
  #when<T>(kind: Waiting['kind'], signal: AbortSignal | undefined, attempt: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason as Error);
      let unlink = () => {};
      const waiting: Waiting = {
        kind,
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

  /**
   * Serves the waiting calls in order of arrival until none can be served. A small `put` does not overtake a large one.
   */
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

const ARRAYS = { u32: Uint32Array, f32: Float32Array, u8: Uint8Array };

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
      addIssue({ message: `it is not base64 of ${type} numbers` });
      return NEVER;
    }
  }),
);
const value = v.union([v.string(), v.number(), v.boolean()]);
const record = v.object({
  key: v.string(),
  tags: v.record(v.string(), value),
  columns: v.record(v.string(), v.union([value, array])),
});
const SAVED = v.array(v.object({ records: v.array(record) }));
