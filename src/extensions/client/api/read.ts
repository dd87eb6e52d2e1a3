/** Validates a client's JSON by valibot schemas. The message of a schema states what is allowed. */

import * as v from 'valibot';
import { isObject } from '../../../tasks/toolSchema.ts';
import { ApiError, refuse } from './apiError.ts';

/** Reads a JSON object that may have only the keys of `entries`. Throws ApiError that names the first invalid key or value. */
export function readBody<const E extends v.ObjectEntries>(entries: E, body: unknown) {
  expectObject(body);
  const known = Object.keys(entries);
  const other = Object.keys(body).find((key) => !known.includes(key));
  if (other !== undefined)
    throw refuse(other.slice(0, 64), `${shown(other)} is not served; known: ${known.join(', ')}.`);
  return read(v.object(entries), withMissing(entries, body));
}

/** Like `readBody`, but also allows other keys, which are returned unchanged. */
export function readSome<const E extends v.ObjectEntries>(entries: E, body: unknown) {
  expectObject(body);
  return read(v.looseObject(entries), withMissing(entries, body));
}

function expectObject(body: unknown): asserts body is Record<string, unknown> {
  if (!isObject(body)) throw new ApiError(`The body is ${shown(body)}. Give a JSON object.`);
}

/** Sets missing keys to undefined, so that a missing key is reported with the message of its own schema, which states what is allowed. */
const withMissing = (entries: object, body: object) => ({
  ...Object.fromEntries(Object.keys(entries).map((key) => [key, undefined])),
  ...body,
});

/** Parses `given` by the schema. Throws ApiError that names the path of the first invalid value. */
export function read<T>(schema: v.GenericSchema<unknown, T>, given: unknown): T {
  const result = v.safeParse(schema, given, { abortEarly: true });
  if (result.success) return result.output;
  const [{ path = [], message }] = result.issues;
  const keys = path.map(({ key }) => (typeof key === 'number' ? `[${key}]` : `.${String(key)}`));
  const at = keys.join('').slice(1);
  throw refuse(at, `${at} is ${shown(path.at(-1)?.value)}; allowed: ${message}.`);
}

/** Formats a value for an error message. */
function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}...` : value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}

/** Schema of a number in a range. */
export const between = (low: number, high: number, words = `a number from ${low} to ${high}`) =>
  v.pipe(v.number(words), v.minValue(low, words), v.maxValue(high, words));

/** Schema of a whole number in a range. */
export const whole = (low: number, high: number, words = `a whole number from ${low} to ${high}`) =>
  v.pipe(between(low, high, words), v.integer(words));

const SHORT = 'a text of at most 512 characters';

/** Schema of a text with at most 512 characters. */
export const text = () => v.pipe(v.string(SHORT), v.maxLength(512, SHORT));

/** Schema of an object with at most `most` entries. `pair` validates each entry, a [key, value] pair. */
export const recordOf = <T>(pair: v.GenericSchema<unknown, [unknown, T]>, most: number, words: string) => {
  const pairs = v.pipe(v.array(pair), v.maxLength(most));
  return v.custom<Readonly<Record<string, T>>>((given) => isObject(given) && v.is(pairs, Object.entries(given)), words);
};
