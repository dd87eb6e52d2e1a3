/**
 * The experience queue between rollout and trainer: samples in columns, by key, with tags that say what they are. Control (keys, tags,
 * who has consumed what) is apart from data, as in verl's TransferQueue.
 */

/** Numbers of a token, or one value. */
export type Column = Uint32Array | Float32Array | Uint8Array | string | number | boolean;

/** What a record is chosen by: its status, its weight version, its worker. */
export type Tags = Record<string, string | number | boolean>;

export interface ExperienceRecord {
  /** `{uid}_{sample}`: of which prompt, and which of its samples. Unique in a partition. */
  key: string;
  columns: Record<string, Column>;
  tags: Tags;
}

/** By tag: the value it must have, or the least and the most it may be. A record without the tag is not chosen. */
export type Where = Record<string, Tags[string] | { atLeast?: number; atMost?: number }>;

export interface TakeOptions {
  /** Who takes: each consumer is given a record once. */
  consumer: string;
  where?: Where;
  /** Takes whole groups: prompts of which so many records can be taken. Absent = records one by one. */
  groupSize?: number;
  /** The columns that are wanted; absent = all. */
  columns?: readonly string[];
  /** Ends the wait: rejects with the signal's reason. */
  signal?: AbortSignal;
}

/** What `list` tells of a record without its data. */
export interface ListedRecord {
  key: string;
  tags: Tags;
  consumedBy: string[];
}

/** Two partitions that know nothing of each other, and more where a program names them. */
export type Partition = 'train' | 'validation' | (string & {});

export interface ExperienceQueue {
  /**
   * Adds records, all of them at once; columns and tags of a key that is there already are added to it. Waits while the queue holds as much as
   * it may. Throws RangeError for records that would not fit into an empty one.
   */
  put(partition: Partition, records: readonly ExperienceRecord[], options?: { signal?: AbortSignal }): Promise<void>;
  /** Records of these keys, in their order. Throws RangeError if one is not there. */
  get(partition: Partition, keys: readonly string[], columns?: readonly string[]): Promise<ExperienceRecord[]>;
  /** Keys and tags in the order of their first put. */
  list(partition: Partition, where?: Where): Promise<ListedRecord[]>;
  /** The oldest `count` records (or groups) that this consumer has not had; waits for them. Those who wait are served in turn. */
  take(partition: Partition, count: number, options: TakeOptions): Promise<ExperienceRecord[]>;
  /** Forgets records, and makes room; absent keys = the whole partition. */
  clear(partition: Partition, keys?: readonly string[]): Promise<void>;
  /** Everything as plain JSON, for a checkpoint. */
  save(): Promise<unknown>;
  /** Replaces everything by what `save` gave. Throws InputError if the state cannot be read. */
  restore(saved: unknown): Promise<void>;
  /** Rejects everybody who waits, and everything asked later. */
  close(): Promise<void>;
}

/** The prompt's part of a key. */
export const uidOf = (key: string): string => key.slice(0, Math.max(0, key.lastIndexOf('_')));

export const bytesOf = ({ key, columns, tags }: ExperienceRecord): number => {
  let bytes = 2 * (key.length + JSON.stringify(tags).length);
  for (const [name, column] of Object.entries(columns))
    bytes += 2 * name.length + (typeof column === 'object' ? column.byteLength : 2 * String(column).length);
  return bytes;
};

export function matches(tags: Tags, where: Where = {}): boolean {
  return Object.entries(where).every(([name, wanted]) => {
    const value = tags[name];
    if (typeof wanted !== 'object') return value === wanted;
    const { atLeast = -Infinity, atMost = Infinity } = wanted;
    return typeof value === 'number' && value >= atLeast && value <= atMost;
  });
}
