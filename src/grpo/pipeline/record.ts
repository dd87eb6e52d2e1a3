/** Records of the experience queue: a scored sample in columns, as in verl's TransferQueue. */

/** Column of a record: numbers per token, or one value. */
export type Column = Uint32Array | Float32Array | Uint8Array | string | number | boolean;

/** Facts about a sample that are not its data: status, weight version, worker. */
export type Tags = Record<string, string | number | boolean>;

/** A sample as a record of the queue; `recordOf` creates it, `sampleOf` reads it. */
export interface ExperienceRecord {
  /** Key `{uid}_{sample}`: id of the prompt group, and index of the sample in it. Unique in a queue. */
  key: string;
  columns: Record<string, Column>;
  tags: Tags;
}

/** Returns the id of the prompt group from a record's key. */
export const uidOf = (key: string): string => key.slice(0, Math.max(0, key.lastIndexOf('_')));

/** Bytes of a record that count against the queue's limit. */
export const bytesOf = ({ key, columns, tags }: ExperienceRecord): number => {
  let bytes = 2 * (key.length + JSON.stringify(tags).length);
  for (const [name, column] of Object.entries(columns))
    bytes += 2 * name.length + (typeof column === 'object' ? column.byteLength : 2 * String(column).length);
  return bytes;
};
