/**
 * Messages of a room. Each contains its version and is validated on arrival, because any holder of a credential can send one. Messages that
 * cannot be read are only refused and counted.
 */

import * as v from 'valibot';
import type { ExperienceRecord } from '../../grpo/queue/types.ts';
import type { Problem } from '../../tasks/task.ts';
import { MessageError, readFrame, writeFrame } from './frame.ts';

/** Version of all messages; other versions are refused. */
export const VERSION = 3;

const whole = v.pipe(v.number(), v.integer(), v.minValue(0));
const text = (most: number) => v.pipe(v.string(), v.maxLength(most));

const message = v.looseObject({ role: v.string(), content: v.string() });
const problem = v.pipe(
  v.looseObject({ id: v.string(), messages: v.pipe(v.array(message), v.minLength(1)), answer: v.string() }),
  v.transform((value) => value as unknown as Problem),
);

/** A line of text from others that is printed. Control characters are refused, because they could move a terminal's cursor. */
const line = (most: number) => v.pipe(text(most), v.regex(/^\P{Cc}*$/u));

/** A worker's request to join: its name, and the public key that its samples are signed with. */
const JOINING = v.object({
  name: line(64),
  key: v.pipe(v.string(), v.regex(/^U[A-Z2-7]{55}$/)),
});

/** The answer: admitted, or the reason for the refusal. */
const ADMISSION = v.object({ refused: v.exactOptional(text(1000)) });

/** Identity of weights: version, and SHA-256 of their file as the object store writes it. */
const WEIGHTS = v.object({ version: whole, digest: text(100) });
export type Weights = v.InferOutput<typeof WEIGHTS>;

/** A group to generate. `ticket` proves that a sample comes from a worker that received the group. */
const PROMPT = v.object({
  uid: text(200),
  ticket: text(200),
  /** Number of samples. */
  n: v.pipe(whole, v.minValue(1)),
  number: whole,
  index: v.exactOptional(whole),
  step: whole,
  /** The newest weights when the group was published. A worker loads them first if its own are older. */
  weights: WEIGHTS,
  problem,
});
export type Prompt = v.InferOutput<typeof PROMPT>;

/** Messages to all workers: new weights, cancelled groups, excluded workers, the end of the run. */
const NOTICE = v.object({
  weights: v.exactOptional(WEIGHTS),
  aborted: v.exactOptional(v.array(v.string())),
  leftOut: v.exactOptional(v.array(v.string())),
  over: v.exactOptional(v.boolean()),
});
export type Notice = v.InferOutput<typeof NOTICE>;

/** Progress of a worker. */
const STATUS = v.object({
  name: line(64),
  adapter: line(200),
  /** Version of the worker's weights. */
  version: whole,
  /** Number of groups in flight. */
  groups: whole,
  /** Number of tokens since the worker joined. */
  tokens: whole,
  tokensPerS: v.pipe(v.number(), v.minValue(0)),
  left: v.exactOptional(v.boolean()),
});
export type Status = v.InferOutput<typeof STATUS>;

/** Description of the room for workers: its config as plain JSON, and how long a worker can hold a group without a sign of life. */
const ROOM = v.object({ config: v.record(v.string(), v.unknown()), ackWaitMs: whole });
export type Room = v.InferOutput<typeof ROOM>;

const SCHEMAS = {
  ...{ joining: JOINING, admission: ADMISSION, weights: WEIGHTS, prompt: PROMPT },
  ...{ notice: NOTICE, status: STATUS, room: ROOM },
};
type Schemas = typeof SCHEMAS;

/** Returns a message as JSON text. */
export const write = <K extends keyof Schemas>(_kind: K, value: v.InferOutput<Schemas[K]>): string =>
  JSON.stringify({ v: VERSION, ...value });

/** Reads a message. Throws MessageError. */
export function read<K extends keyof Schemas>(kind: K, data: Uint8Array): v.InferOutput<Schemas[K]> {
  return checked(kind, SCHEMAS[kind], parsed(kind, data)) as v.InferOutput<Schemas[K]>;
}

const SAMPLE = v.object({ ticket: text(200), key: text(250) });

/** Returns the message of a finished sample, with the ticket of its group. */
export function writeSample(record: ExperienceRecord, ticket: string): Uint8Array {
  return writeFrame({ v: VERSION, ticket }, record);
}

/** Reads a sample and its ticket. Throws MessageError. */
export function readSample(data: Uint8Array): { ticket: string; record: ExperienceRecord } {
  const { more, record } = readFrame(data);
  const { ticket } = checked('sample', SAMPLE, { ...more, key: record.key }) as v.InferOutput<typeof SAMPLE>;
  return { ticket, record };
}

function parsed(kind: string, data: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(data));
  } catch {
    throw new MessageError('malformed', `A message (${kind}) is not JSON.`);
  }
}

function checked(kind: string, schema: v.GenericSchema, value: unknown): unknown {
  const { v: version } = (value ?? {}) as { v?: unknown };
  if (version !== VERSION)
    throw new MessageError(
      'version',
      `A message (${kind}) has version ${JSON.stringify(version)}, and ${VERSION} is used here. Use the same webgrpo on both sides.`,
    );
  const result = v.safeParse(schema, value);
  if (result.success) return result.output;
  const [{ path = [], message: why }] = result.issues;
  throw new MessageError(
    'malformed',
    `A message (${kind}) cannot be read: ${path.map(({ key }) => String(key)).join('.')}: ${why}.`,
  );
}
