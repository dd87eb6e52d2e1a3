/**
 * Writes TensorBoard event files. Each record is a length, a CRC, a protobuf `Event` and another CRC. Only the fields that scalars need are
 * written, with the field numbers of tensorflow's `event.proto` and `summary.proto`.
 */

import { concat } from '../concat.ts';
import type { Metrics } from '../grpo/metrics.ts';

/** Content of an event: the format version, the scalars of a step, or the start of a session. */
type EventBody = { fileVersion: string } | { scalars: Metrics } | { sessionStart: true };

interface EventTime {
  /** Seconds since 1970. */
  wallTime: number;
  step: number;
}

/** Returns the record with which every file starts. */
export const fileHeader = (wallTime: number): Uint8Array =>
  record(event({ wallTime, step: 0 }, { fileVersion: 'brain.Event:2' }));

/** Returns an event that makes readers drop the values of `step` and later in earlier files (`purge_step` in torch and tensorboardX). */
export const sessionStart = (time: EventTime): Uint8Array => record(event(time, { sessionStart: true }));

/** Returns one record with all scalars of a step, under the names of the metrics. */
export const scalars = (time: EventTime, metrics: Metrics): Uint8Array => record(event(time, { scalars: metrics }));

/** Returns the event as protobuf. Exported for tests. */
export function event({ wallTime, step }: EventTime, body: EventBody): Uint8Array {
  const parts = [key(1, WIRE.fixed64), little(8, (view) => view.setFloat64(0, wallTime, true))];
  if (step > 0) parts.push(key(2, WIRE.varint), varint(step));
  if ('fileVersion' in body) parts.push(bytesField(3, utf8(body.fileVersion)));
  else if ('sessionStart' in body) parts.push(bytesField(7, concat(Uint8Array, [key(1, WIRE.varint), varint(1)])));
  else parts.push(bytesField(5, concat(Uint8Array, Object.entries(body.scalars).map(summaryValue))));
  return concat(Uint8Array, parts);
}

function summaryValue([tag, value]: [string, number]): Uint8Array {
  const simpleValue = little(4, (view) => view.setFloat32(0, value, true));
  return bytesField(1, concat(Uint8Array, [bytesField(1, utf8(tag)), key(2, WIRE.fixed32), simpleValue]));
}

/** Returns data in TFRecord framing: length (u64), masked CRC of the length, the data, masked CRC of the data; all little-endian. */
function record(data: Uint8Array): Uint8Array {
  const length = little(8, (view) => view.setBigUint64(0, BigInt(data.length), true));
  const crc = (bytes: Uint8Array) => little(4, (view) => view.setUint32(0, maskedCrc(bytes), true));
  return concat(Uint8Array, [length, crc(length), data, crc(data)]);
}

/**
 * Returns the masked form of a CRC-32C, rotated by 15 bits plus a constant, as TFRecord requires. It avoids problems with CRCs of data that
 * contains CRCs.
 */
export function maskedCrc(bytes: Uint8Array): number {
  const crc = crc32c(bytes);
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}

/** Returns CRC-32C (Castagnoli; RFC 3720, B.4). */
export function crc32c(bytes: Uint8Array): number {
  let crc = ~0;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}

/** The Castagnoli polynomial with its bits reversed. */
const POLYNOMIAL = 0x82f63b78;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ POLYNOMIAL : crc >>> 1;
  return crc;
});

/** Protobuf's wire types. */
const WIRE = { varint: 0, fixed64: 1, bytes: 2, fixed32: 5 };

const key = (field: number, wire: number): Uint8Array => varint((field << 3) | wire);

const bytesField = (field: number, data: Uint8Array): Uint8Array =>
  concat(Uint8Array, [key(field, WIRE.bytes), varint(data.length), data]);

/**
 * Encodes a varint: seven bits per byte, lowest first.
 * @param value an integer from 0 to 2^53 - 1
 */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  for (; value >= 128; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Uint8Array.from([...bytes, value]);
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

function little(size: number, write: (view: DataView) => void): Uint8Array {
  const bytes = new Uint8Array(size);
  write(new DataView(bytes.buffer));
  return bytes;
}
