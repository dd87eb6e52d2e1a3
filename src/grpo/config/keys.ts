/** Building blocks of the config schemas: every key carries its unit and the reason for its default. */

import * as v from 'valibot';
import { REGISTER_IT } from '../../shared.ts';

export const ANY: [number, number] = [0, Infinity];
export const SHARE: [number, number] = [0, 1];
/** Lowest and highest temperature. Temperatures outside this range would overflow float32 logits. */
export const TEMPERATURE: [number, number] = [1e-6, 1e6];

/** Range of float32, in which the GPU computes: larger numbers become infinite, smaller ones 0. */
export const [MIN_FLOAT32, MAX_FLOAT32] = [1.1754943508222875e-38, 3.4028234663852886e38];

/**
 * Largest allowed count per unit; with larger counts a run would hang or abort without an error message. Tokens are
 * positions, which float32 counts exactly up to 2^24. Each other limit is far above the largest published runs and
 * models.
 */
export const MOST: Readonly<Record<string, number>> = {
  tokens: 2 ** 24,
  prompts: 2 ** 20,
  samples: 2 ** 20,
  problems: 2 ** 20,
  traces: 2 ** 20,
  groups: 2 ** 20,
  sequences: 2 ** 16,
  rows: 2 ** 16,
  channels: 2 ** 16,
  heads: 2 ** 12,
  layers: 2 ** 10,
  passes: 2 ** 10,
};
/** Largest allowed count in all other units (steps, seeds, characters, ...), which need no memory by themselves. */
const MOST_OF_OTHERS = 2 ** 31;

/** A number that float32 can hold. */
const finite = v.pipe(v.number(), v.finite(), v.minValue(-MAX_FLOAT32), v.maxValue(MAX_FLOAT32));

/**
 * Notes on a config key. The reference page, error messages, the export to other trainers and the learner read them.
 */
type About = {
  /** Reason for the default, and the meaning if the key is missing. */
  why: string;
  /** Lower bound of a count. Default: 1. */
  min?: number;
  /** Hydra path in verl's ppo_trainer; '=' means the path that peerNames.ts derives. */
  verl?: string;
  /** Name in TRL. */
  trl?: string;
  /** Differences from the keys `verl` and `trl` that a user of those trainers must know. */
  note?: string;
  /**
   * True if the key can change during a run: each step reads the key's value again, and no value needs other buffers on
   * the engine.
   */
  live?: true;
  /** True if the learner's `forwardBackward` accepts the key. */
  ofLoss?: true;
};

/** Notes on a key, or only its `why` as text. */
type Notes = string | About;

/** Notes on a key, with its unit and its range. */
type KeyDoc = About & {
  /** Unit of the value: 'prompts', 'tokens', 'nats', ...; '' for names and flags. */
  unit: string;
  /** Allowed values, as documents and errors print them: '>= 1', 'a | b'. */
  range: string;
};

/** Type of a key's notes. It keeps the flags `live` and `ofLoss` as types, so that `Flagged` can select keys by them. */
type DocOf<N> = KeyDoc & (N extends About ? Pick<N, keyof N & ('live' | 'ofLoss')> : unknown);

/** Paths of the keys in a part of the config that have the flag `F`. */
export type Flagged<Entries, Flag extends 'live' | 'ofLoss'> = {
  [K in keyof Entries & string]: Entries[K] extends { entries: infer Inner } | { wrapped: { entries: infer Inner } }
    ? `${K}.${Flagged<Inner, Flag>}`
    : Entries[K] extends { wrapped: { pipe: readonly [...unknown[], { metadata: Record<Flag, true> }] } }
      ? K
      : never;
}[keyof Entries & string];

const about = (notes: Notes): About => (typeof notes === 'string' ? { why: notes } : notes);

const mostOf = (unit: string): number => MOST[unit] ?? MOST_OF_OTHERS;

/** Valibot's type of a schema with notes. */
type Noted<S extends v.GenericSchema, N> = v.SchemaWithPipe<readonly [S, v.MetadataAction<v.InferOutput<S>, DocOf<N>>]>;

/** A required key. */
const required = <const S extends v.GenericSchema, const N extends Notes>(
  schema: S,
  range: string | (() => string),
  unit: string,
  notes: N,
): Noted<S, N> => {
  const rangeNow = () => (typeof range === 'string' ? range : range());
  const doc: KeyDoc = {
    ...about(notes),
    unit,
    get range() {
      return rangeNow();
    },
  };
  return v.pipe(schema, v.metadata(doc as DocOf<N>));
};

/** Schema of a key with a default. If the default is undefined, `why` says what a missing key means. */
const key = <const S extends v.GenericSchema, const D, const N extends Notes>(
  byDefault: D,
  schema: S,
  range: string | (() => string),
  unit: string,
  notes: N,
) =>
  // TypeScript cannot check here that the default fits the schema. The constructors below have concrete types, so it is checked there.
  v.optional(required(schema, range, unit, notes), byDefault as never) as v.OptionalSchema<
    Noted<S, N>,
    D extends undefined ? undefined : never
  >;

const integer = (unit: string, min: number) =>
  v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(mostOf(unit)));

const nonEmpty = v.pipe(v.string(), v.nonEmpty());

/** An integer of at least `min`. */
export const count = <const D extends number | undefined, const N extends Notes>(
  byDefault: D,
  unit: string,
  notes: N,
) => {
  const { min = 1 } = about(notes);
  return key(byDefault, integer(unit, min), `integer >= ${min}`, unit, notes);
};

/** An integer; 0 turns the setting off, and verl's -1 is read as 0. */
export const countOrOff = <const N extends Notes>(byDefault: number, unit: string, notes: N) => {
  const schema = v.pipe(
    integer(unit, -1),
    v.transform((value) => Math.max(0, value)),
  );
  return key(byDefault, schema, 'integer >= 0, or -1 = 0', unit, notes);
};

/** Like `count`, but without a default; also accepts -1, with which verl means "all". */
export const optionalCountOrAll = <const N extends Notes>(unit: string, notes: N) => {
  const schema = v.pipe(
    integer(unit, -1),
    v.check((value) => value !== 0),
  );
  return key(undefined, schema, 'integer >= 1, or -1', unit, notes);
};

/** A number in [min, max]. */
export const number = <const D extends number | undefined, const N extends Notes>(
  byDefault: D,
  [min, max]: [number, number],
  unit: string,
  notes: N,
) => key(byDefault, v.pipe(finite, v.minValue(min), v.maxValue(max)), numberRange(min, max), unit, notes);

/** A number strictly above 0. */
export const positive = <const D extends number | undefined, const N extends Notes>(
  byDefault: D,
  unit: string,
  notes: N,
) => key(byDefault, v.pipe(finite, v.gtValue(0), v.minValue(MIN_FLOAT32)), '> 0', unit, notes);

/** Like `positive`, or "auto", which is the default. */
export const positiveOrAuto = <const N extends Notes>(unit: string, notes: N) =>
  key(
    'auto',
    v.union([v.picklist(['auto']), v.pipe(finite, v.gtValue(0), v.minValue(MIN_FLOAT32))]),
    'auto, or > 0',
    unit,
    notes,
  );

/** A boolean. */
export const flag = <const D extends boolean | undefined, const N extends Notes>(byDefault: D, notes: N) =>
  key(byDefault, v.boolean(), 'true | false', '', notes);

/** A flag, or "auto", which is the default. */
export const flagOrAuto = <const N extends Notes>(notes: N) =>
  key('auto', v.union([v.picklist(['auto']), v.boolean()]), 'auto | true | false', '', notes);

/** A boolean, or a count in `unit`. */
export const flagOrCount = <const N extends Notes>(byDefault: boolean, unit: string, notes: N) =>
  key(byDefault, v.union([v.boolean(), integer(unit, 1)]), 'true | false | integer >= 1', unit, notes);

/** One of `options`. */
export const choice = <
  const T extends readonly string[],
  const D extends NoInfer<T[number]> | undefined,
  const N extends Notes,
>(
  byDefault: D,
  options: T,
  notes: N,
) => key(byDefault, v.picklist(options), options.join(' | '), '', notes);

/** Like `choice`, but ignores case and underscores: 'sign_sgd' is SignSGD. */
export const nameOf = <const T extends readonly string[], const N extends Notes>(
  byDefault: NoInfer<T[number]>,
  options: T,
  notes: N,
) => {
  const plain = (name: string) => name.replaceAll('_', '').toLowerCase();
  const named = v.transform((name: string) => options.find((option) => plain(option) === plain(name)) ?? name);
  return key(byDefault, v.pipe(v.string(), named, v.picklist(options)), options.join(' | '), '', notes);
};

/**
 * A name from a list that can grow until a config is read, because losses, advantages and recipes can be registered.
 * The range lists the names known when it is read.
 */
export const known = <T extends string, const D extends T | undefined, const N extends Notes>(
  byDefault: D,
  names: () => readonly T[],
  notes: N,
) => {
  const isKnown = v.check((name: string) => names().some((one) => one === name), REGISTER_IT);
  const schema = v.pipe(
    v.string(),
    isKnown,
    v.transform((name) => name as T),
  );
  return key(byDefault, schema, () => names().join(' | '), '', notes);
};

/** A non-empty text. */
export const text = <const D extends string | undefined, const N extends Notes>(byDefault: D, notes: N) =>
  key(byDefault, nonEmpty, 'text', '', notes);

/** Like `text`, but required. */
export const requiredText = <const N extends Notes>(notes: N) => required(nonEmpty, 'text', '', notes);

/** A text, a list of texts, or an object with a text for each name. */
export const optionalTextOrTexts = <const N extends Notes>(notes: N) => {
  const named = v.pipe(
    v.record(v.string(), nonEmpty),
    v.check((texts) => Object.keys(texts).length > 0),
  );
  const several = v.pipe(v.array(nonEmpty), v.nonEmpty());
  return key(undefined, v.union([nonEmpty, several, named]), 'text, list of texts, or texts by name', '', notes);
};

/** The path of a file, or the file's content; the code that reads the key as `T` checks the content. */
export const optionalPathOr = <T extends object>(notes: Notes, range: string) => {
  const tree = v.custom<T>((value) => typeof value === 'object' && value !== null && !Array.isArray(value));
  return key(undefined, v.union([nonEmpty, tree]), `path, or ${range}`, '', notes);
};

/** Groups of settings by name, which the code that reads them checks, or the path of a file with such groups. */
export const optionalTextOrGroups = <const N extends Notes>(notes: N) => {
  const setting = v.union([v.string(), finite, v.boolean(), v.array(v.string()), v.record(v.string(), v.string())]);
  const groups = v.record(v.string(), v.record(v.string(), setting));
  return key(undefined, v.union([nonEmpty, groups]), 'text, or settings by name', '', notes);
};

/** A number, or a text such as '0.5_2' that the code that reads the key parses. */
export const optionalNumberOrText = <const N extends Notes>(unit: string, notes: N) =>
  key(undefined, v.union([finite, v.string()]), 'number or text', unit, notes);

/** One or more texts. */
export const optionalTexts = <const N extends Notes>(notes: N) =>
  key(undefined, v.pipe(v.array(nonEmpty), v.nonEmpty()), 'list of texts', '', notes);

/** A list of numbers, without a default. */
export const optionalNumbers = <const N extends Notes>(notes: N) =>
  key(undefined, v.pipe(v.array(finite), v.nonEmpty()), 'list of numbers', '', notes);

/** Two numbers in [min, max]. */
export const pair = <const N extends Notes>(byDefault: [number, number], [min, max]: [number, number], notes: N) => {
  const one = v.pipe(v.number(), v.minValue(min), v.ltValue(max));
  return key(byDefault, v.strictTuple([one, one]), `two numbers in [${min}, ${max})`, '', notes);
};

/** A list of one or more of `options`; a single one can be written without brackets. */
export const names = <
  const T extends readonly string[],
  const D extends NoInfer<T[number]>[] | undefined,
  const N extends Notes,
>(
  byDefault: D,
  options: T,
  notes: N,
) => {
  const one = v.pipe(
    v.picklist(options),
    v.transform((name) => [name]),
  );
  const several = v.pipe(v.array(v.picklist(options)), v.minLength(1));
  return key(byDefault, v.union([one, several]), `some of ${options.join(', ')}`, '', notes);
};

/** Named values of any kind. The code that reads the values checks them. */
export const options = <const N extends Notes>(notes: N) =>
  key({}, v.record(v.string(), v.union([v.string(), finite, v.boolean()])), 'named values', '', notes);

/** Numbers by name. */
export const namedNumbers = <const N extends Notes>(notes: N) =>
  key({}, v.record(v.string(), finite), 'named numbers', '', notes);

/**
 * Schema of a part of the config: unknown keys are errors; if the part is missing, all its keys have their defaults.
 */
export const part = <T extends v.ObjectEntries>(entries: T) => v.strictObject(entries);

function numberRange(min: number, max: number): string {
  if (min === -Infinity && max === Infinity) return 'any number';
  if (max === Infinity) return `>= ${min}`;
  return `${min} to ${max}`;
}

/** A key of a schema, with its notes. */
export type DocumentedKey = KeyDoc & {
  path: string;
  /** Default of the key. Undefined if the key has none; `why` then says what a missing key means. */
  default: unknown;
  required: boolean;
};

interface SchemaShape {
  type: string;
  wrapped?: SchemaShape;
  default?: unknown;
  entries?: Record<string, SchemaShape>;
  pipe?: { type: string; metadata?: KeyDoc }[];
}

/** Returns every key of a schema in order, with its notes. */
export function keyDocs(schema: v.GenericSchema): DocumentedKey[] {
  const keys: DocumentedKey[] = [];
  const walk = (shape: SchemaShape, path: string): void => {
    const inner = shape.type === 'optional' && shape.wrapped ? shape.wrapped : shape;
    if (inner.entries) {
      for (const [key, entry] of Object.entries(inner.entries)) walk(entry, path ? `${path}.${key}` : key);
      return;
    }
    const notes = inner.pipe?.find((item) => item.type === 'metadata')?.metadata;
    if (!notes)
      throw new Error(`Config key "${path}" has no documentation. Define the key with the functions of keys.ts.`);
    keys.push({ path, default: shape.default, required: shape.type !== 'optional', ...notes });
  };
  walk(schema, '');
  return keys;
}

/** Returns the keys and the parts that contain them: for "actor.optim.lr" also "actor" and "actor.optim". */
export function keysAndParts(schema: v.GenericSchema): Set<string> {
  const paths = keyDocs(schema).map((doc) => doc.path);
  return new Set(paths.flatMap((path) => path.split('.').map((_, i, keys) => keys.slice(0, i + 1).join('.'))));
}
