/** JSON of tests. */

/** Returns a value as it is after it was written as JSON and read again. */
export function throughJson<T>(value: T): T;
export function throughJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}
