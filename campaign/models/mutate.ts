/** Damages real files: bytes changed, cut, inserted; JSON with unexpected values. */

import fc from 'fast-check';

type Json = Record<string, unknown>;

const deep = (depth: number): unknown => Array.from({ length: depth }).reduce<unknown>((inner) => [inner], 1);

/** Values that replace expected values in a JSON file. */
export const ODD: readonly unknown[] = [
  ...[null, true, false, 0, -1, 1, 2, 0.5, 7, 1e9, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 53, 1e300, -1e300, Infinity],
  ...['', 'x', 'true', '1', '__proto__', '../../etc/passwd', '\u0000', '\ud800', 'x'.repeat(100_000)],
  ...[[], {}, [null], [[]], { type: 'Sequence' }, { type: 'Magic' }, deep(50), Array(1000).fill(1), [1, 'a', null]],
  ...[{ content: 7 }, { __proto__: null, constructor: 1 }, { String: '' }, { Regex: '(' }, { Regex: '(a+)+$' }],
];

/** Returns every place in a JSON value as a list of keys; of a long list or table only the first few. */
function places(value: unknown, path: string[] = []): string[][] {
  if (typeof value !== 'object' || value === null) return [path];
  const entries = Object.entries(value).slice(0, 12);
  return [path, ...entries.flatMap(([key, inner]) => places(inner, [...path, key]))];
}

const OPERATIONS = ['set', 'set', 'set', 'drop', 'rename', 'double'] as const;

function changed(json: Json, [place, operation, odd]: [number, (typeof OPERATIONS)[number], unknown]): Json {
  const all = places(json).slice(1);
  if (all.length === 0) return json;
  const path = all[place % all.length];
  const copy = structuredClone(json);
  const parent = path.slice(0, -1).reduce<Json>((at, key) => at[key] as Json, copy);
  const key = path[path.length - 1];
  const value = parent[key];
  if (operation === 'set') parent[key] = odd;
  else if (operation === 'double')
    parent[key] = Array.isArray(value) ? [...(value as unknown[]), ...(value as unknown[])] : [value, value];
  else {
    if (Array.isArray(parent)) parent.splice(Number(key), 1);
    else delete parent[key];
    if (operation === 'rename') parent[`${key}_`] = value;
  }
  return copy;
}

/** Returns the JSON value with one to three changes. */
export const mutatedJson = (json: Json): fc.Arbitrary<Json> =>
  fc
    .array(fc.tuple(fc.nat(), fc.constantFrom(...OPERATIONS), fc.constantFrom(...ODD)), { minLength: 1, maxLength: 3 })
    .map((changes) => changes.reduce(changed, json));

/** Returns JSON text. A value that JSON cannot express is written as a number that overflows. */
export const encodeJson = (json: unknown): Uint8Array =>
  new TextEncoder().encode(
    JSON.stringify(json, (_, value: unknown) => (value === Infinity ? '1e999' : value)).replaceAll('"1e999"', '1e999'),
  );

/** Returns the bytes with one to four changes, anywhere or in the first `within` bytes. */
export function mutatedBytes(bytes: Uint8Array, within = bytes.length): fc.Arbitrary<Uint8Array> {
  const at = fc.nat(within - 1);
  const change = fc.oneof(
    fc.tuple(fc.constant('flip' as const), at, fc.nat(7)),
    fc.tuple(fc.constant('cut' as const), at, fc.nat(64)),
    fc.tuple(fc.constant('insert' as const), at, fc.nat(255)),
    fc.tuple(fc.constant('end' as const), at, fc.nat()),
    fc.tuple(fc.constant('fill' as const), at, fc.nat(255)),
  );
  return fc.array(change, { minLength: 1, maxLength: 4 }).map((changes) =>
    changes.reduce((from, [how, place, n]) => {
      const p = Math.min(place, from.length);
      if (how === 'end') return from.slice(0, p);
      if (how === 'insert') return Uint8Array.of(...from.subarray(0, p), n, ...from.subarray(p));
      if (how === 'cut') return Uint8Array.of(...from.subarray(0, p), ...from.subarray(p + n));
      const copy = from.slice();
      if (how === 'flip' && p < copy.length) copy[p] ^= 1 << n;
      else copy.fill(n, p, p + 8);
      return copy;
    }, bytes),
  );
}
