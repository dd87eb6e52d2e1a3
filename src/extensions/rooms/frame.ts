/**
 * Converts a record of the experience queue to bytes: the length of the head (u32, little-endian), the head (JSON), then the arrays of its
 * columns in the order of the head, each at an offset that is a multiple of 4.
 */

import * as v from 'valibot';
import type { Column, ExperienceRecord } from '../../grpo/pipeline/record.ts';

/** Reason why a message was refused. */
export type Refusal = 'malformed' | 'version' | 'signature' | 'ticket';

/** A message that was refused. Refused messages are counted by reason. */
export class MessageError extends Error {
  override name = 'MessageError';
  readonly refusal: Refusal;

  constructor(refusal: Refusal, message: string) {
    super(message);
    this.refusal = refusal;
  }
}

const ARRAYS = { u32: Uint32Array, f32: Float32Array, u8: Uint8Array };

const value = v.union([v.string(), v.number(), v.boolean()]);
const numbers = v.object({
  type: v.picklist(['u32', 'f32', 'u8']),
  length: v.pipe(v.number(), v.integer(), v.minValue(0)),
});
const HEAD = v.object({
  key: v.string(),
  tags: v.record(v.string(), value),
  columns: v.record(v.string(), v.union([value, numbers])),
  more: v.record(v.string(), v.unknown()),
});

/**
 * Converts a record to bytes.
 * @param more further JSON values to send with the record
 */
export function writeFrame(more: Record<string, unknown>, { key, columns, tags }: ExperienceRecord): Uint8Array {
  const arrays = Object.values(columns).filter((column) => typeof column === 'object');
  const described = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, description(column)]));
  const head = new TextEncoder().encode(JSON.stringify({ key, tags, columns: described, more }));
  const first = padded(4 + head.length);
  const bytes = new Uint8Array(arrays.reduce((sum, { byteLength }) => sum + padded(byteLength), first));
  new DataView(bytes.buffer).setUint32(0, head.length, true);
  bytes.set(head, 4);
  let at = first;
  for (const { buffer, byteOffset, byteLength } of arrays) {
    bytes.set(new Uint8Array(buffer, byteOffset, byteLength), at);
    at += padded(byteLength);
  }
  return bytes;
}

/** Reads the bytes of `writeFrame`, and copies the arrays. Throws MessageError for other bytes. */
export function readFrame(bytes: Uint8Array): { more: Record<string, unknown>; record: ExperienceRecord } {
  const { key, tags, columns: described, more } = headOf(bytes);
  const columns: Record<string, Column> = {};
  let at = padded(4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true));
  for (const [name, column] of Object.entries(described)) {
    if (typeof column !== 'object') {
      columns[name] = column;
      continue;
    }
    const Numbers = ARRAYS[column.type];
    const length = column.length * Numbers.BYTES_PER_ELEMENT;
    if (at + length > bytes.length) throw malformed(`column "${name}" ends after the message`);
    columns[name] = new Numbers(Uint8Array.from(bytes.subarray(at, at + length)).buffer);
    at += padded(length);
  }
  if (at !== bytes.length) throw malformed('it is longer than its columns');
  return { more, record: { key, tags, columns } };
}

function headOf(bytes: Uint8Array): v.InferOutput<typeof HEAD> {
  const length = bytes.length < 4 ? Infinity : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  if (4 + length > bytes.length) throw malformed('its head ends after the message');
  let json: unknown;
  try {
    json = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(4, 4 + length)));
  } catch {
    throw malformed('its head is not JSON');
  }
  const result = v.safeParse(HEAD, json);
  if (result.success) return result.output;
  const [{ path = [], message }] = result.issues;
  throw malformed(`${path.map(({ key }) => String(key)).join('.')}: ${message}`);
}

function description(column: Column): unknown {
  if (typeof column !== 'object') return column;
  const [type] = Object.entries(ARRAYS).find(([, Numbers]) => column instanceof Numbers)!;
  return { type, length: column.length };
}

const malformed = (why: string) => new MessageError('malformed', `A record that arrived cannot be read: ${why}.`);

const padded = (bytes: number): number => Math.ceil(bytes / 4) * 4;
