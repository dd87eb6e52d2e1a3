/** Records of the experience queue: a scored sample in columns, as in verl's TransferQueue. */

/** Numbers of a token, or one value. */
export type Column = Uint32Array | Float32Array | Uint8Array | string | number | boolean;

/** Facts about a sample beside its data: its status, its weight version, its worker. */
export type Tags = Record<string, string | number | boolean>;

/** A sample by its key; `recordOf` makes one, `sampleOf` reads it. */
export interface ExperienceRecord {
  /** `{uid}_{sample}`: of which prompt, and which of its samples. Unique in a queue. */
  key: string;
  columns: Record<string, Column>;
  tags: Tags;
}

/** The prompt's part of a key. */
export const uidOf = (key: string): string => key.slice(0, Math.max(0, key.lastIndexOf('_')));

/** Bytes that a record counts for against the queue's limit. */
export const bytesOf = ({ key, columns, tags }: ExperienceRecord): number => {
  let bytes = 2 * (key.length + JSON.stringify(tags).length);
  for (const [name, column] of Object.entries(columns))
    bytes += 2 * name.length + (typeof column === 'object' ? column.byteLength : 2 * String(column).length);
  return bytes;
};
