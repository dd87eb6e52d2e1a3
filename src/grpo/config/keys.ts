/** Building blocks of the config schemas: every key carries its unit and the reason for its default. */

import * as v from 'valibot';

export const ANY: [number, number] = [0, Infinity];
export const SHARE: [number, number] = [0, 1];
/** Temperatures beyond it would overflow float32 logits. */
export const TEMPERATURE: [number, number] = [1e-6, 1e6];

/** The GPU computes in float32: beyond these a number is infinite or 0 there. */
export const [MIN_FLOAT32, MAX_FLOAT32] = [1.1754943508222875e-38, 3.4028234663852886e38];

/**
 * The most that a count of a unit can mean: with more a run would hang or abort before it could say why. Tokens are positions,
 * which float32 counts exactly to 2^24; of the rest each bound is far above the largest runs and models that are published.
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
/** Steps, seeds, characters, ...: what only counts, or is bounded by what the run does. */
const MOST_OF_OTHERS = 2 ** 31;

/** What float32 can hold. */
const finite = v.pipe(v.number(), v.finite(), v.minValue(-MAX_FLOAT32), v.maxValue(MAX_FLOAT32));

/** The notes on a key, which documents, hints, exports and calls read. */
type About = {
  /** The reason for the default, and the meaning of absence. */
  why: string;
  /** Lower bound of a count; absent = 1. */
  min?: number;
  /** Hydra path in verl's ppo_trainer; '=' is the path by the rule of peerNames.ts. */
  verl?: string;
  /** Name in TRL. */
  trl?: string;
  /** Differences that one must know beside these names. */
  note?: string;
  /** True if it can change during a run: a number that each step reads again, without other buffers on the engine. */
  live?: true;
  /** True if a call of the learner's `forwardBackward` takes it. */
  ofLoss?: true;
};

/** The notes, or the reason alone. */
type Notes = string | About;

/** Notes of a key, and what its constructor knows. */
type KeyDoc = About & {
  /** 'prompts', 'tokens', 'nats', ...; '' for names and flags. */
  unit: string;
  /** The allowed values, as a reader says them: '>= 1', 'a | b'. */
  range: string;
};

/** Notes as the type of a key keeps them, so that `Flagged` finds its flags. */
type DocOf<N> = KeyDoc & (N extends About ? Pick<N, keyof N & ('live' | 'ofLoss')> : unknown);

/** Paths of the keys of a part that have a flag. */
export type Flagged<Entries, Flag extends 'live' | 'ofLoss'> = {
  [K in keyof Entries & string]: Entries[K] extends { entries: infer Inner } | { wrapped: { entries: infer Inner } }
    ? `${K}.${Flagged<Inner, Flag>}`
    : Entries[K] extends { wrapped: { pipe: readonly [...unknown[], { metadata: Record<Flag, true> }] } }
      ? K
      : never;
}[keyof Entries & string];

const about = (notes: Notes): About => (typeof notes === 'string' ? { why: notes } : notes);

const doc = <T, const N extends Notes = Notes>(unit: string, notes: N, range: string) =>
  v.metadata<T, DocOf<N>>({ ...about(notes), unit, range } as DocOf<N>);

const mostOf = (unit: string): number => MOST[unit] ?? MOST_OF_OTHERS;

/** An integer of at least `min`. If `byDefault` is undefined, the key has no default: absent then means what `why` says. */
export const count = <const D extends number | undefined>(byDefault: D, unit: string, notes: Notes) => {
  const { min = 1 } = about(notes);
  const range = `integer >= ${min}`;
  const integer = v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(mostOf(unit)));
  return v.optional(v.pipe(integer, doc<number>(unit, notes, range)), byDefault);
};

/** An integer where 0 is off; verl's -1 is read as 0. */
export const countOrOff = (byDefault: number, unit: string, notes: Notes) =>
  v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(-1),
      v.maxValue(mostOf(unit)),
      v.transform((value) => Math.max(0, value)),
      doc<number>(unit, notes, 'integer >= 0, or -1 = 0'),
    ),
    byDefault,
  );

/** Like `count` without a default, and verl's -1 for all. */
export const optionalCountOrAll = (unit: string, notes: Notes) =>
  v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.check((value) => value === -1 || value >= 1),
      v.maxValue(mostOf(unit)),
      doc<number>(unit, notes, 'integer >= 1, or -1'),
    ),
  );

/** A number in [min, max]. */
export const number = <const D extends number | undefined, const N extends Notes>(
  byDefault: D,
  [min, max]: [number, number],
  unit: string,
  notes: N,
) =>
  v.optional(
    v.pipe(finite, v.minValue(min), v.maxValue(max), doc<number, N>(unit, notes, numberRange(min, max))),
    byDefault,
  );

/** A number strictly above 0. */
export const positive = <const N extends Notes>(byDefault: number, unit: string, notes: N) =>
  v.optional(v.pipe(finite, v.gtValue(0), v.minValue(MIN_FLOAT32), doc<number, N>(unit, notes, '> 0')), byDefault);

export const flag = <const D extends boolean | undefined, const N extends Notes>(byDefault: D, notes: N) =>
  v.optional(v.pipe(v.boolean(), doc<boolean, N>('', notes, 'true | false')), byDefault);

/** Off, on, or on for so many of a unit. */
export const flagOrCount = (byDefault: boolean, unit: string, notes: Notes) =>
  v.optional(
    v.pipe(
      v.union([v.boolean(), v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(mostOf(unit)))]),
      doc<boolean | number>(unit, notes, 'true | false | integer >= 1'),
    ),
    byDefault,
  );

/** One of `options`. */
export const choice = <
  const T extends readonly string[],
  const D extends NoInfer<T[number]> | undefined,
  const N extends Notes,
>(
  byDefault: D,
  options: T,
  notes: N,
) => withDefault(v.pipe(v.picklist(options), doc<T[number], N>('', notes, options.join(' | '))), byDefault);

/** Like `choice`, whatever the case of its letters and with or without underscores: 'sign_sgd' is SignSGD. */
export const nameOf = <const T extends readonly string[]>(byDefault: NoInfer<T[number]>, options: T, notes: Notes) => {
  const plain = (name: string) => name.replaceAll('_', '').toLowerCase();
  const named = v.transform((name: string) => options.find((option) => plain(option) === plain(name)) ?? name);
  const docs = doc<T[number]>('', notes, options.join(' | '));
  return v.optional(v.pipe(v.string(), named, v.picklist(options), docs), byDefault as never);
};

/** One of names that may grow until a config is read; its range is what is known when it is asked for. */
export const known = <T extends string, const D extends T | undefined>(
  byDefault: D,
  names: () => readonly T[],
  notes: Notes,
) =>
  withDefault(
    v.pipe(
      v.string(),
      v.check((name) => names().some((one) => one === name)),
      v.transform((name) => name as T),
      v.metadata<T, KeyDoc>({
        ...about(notes),
        unit: '',
        get range() {
          return names().join(' | ');
        },
      }),
    ),
    byDefault,
  );

/** A text that is not empty. */
export const text = <const D extends string | undefined>(byDefault: D, notes: Notes) =>
  v.optional(requiredText(notes), byDefault);

/** A text, a list of texts, or texts by name; absent means something, which `why` says. */
export const optionalTextOrTexts = (notes: Notes) => {
  const one = v.pipe(v.string(), v.nonEmpty());
  const named = v.pipe(
    v.record(v.string(), one),
    v.check((texts) => Object.keys(texts).length > 0),
  );
  const several = v.pipe(v.array(one), v.nonEmpty());
  return v.optional(
    v.pipe(
      v.union([one, several, named]),
      doc<string | string[] | Record<string, string>>('', notes, 'text, list of texts, or texts by name'),
    ),
  );
};

/** The path of a file, or what it would hold; the reader of `T` checks that. */
export const optionalPathOr = <T extends object>(notes: Notes, range: string) => {
  const tree = v.custom<T>((value) => typeof value === 'object' && value !== null && !Array.isArray(value));
  return v.optional(
    v.pipe(v.union([v.pipe(v.string(), v.nonEmpty()), tree]), doc<string | T>('', notes, `path, or ${range}`)),
  );
};

/** Named groups of settings, checked by their reader, or the path of a file with them. */
export const optionalTextOrGroups = (notes: Notes) => {
  const setting = v.union([v.string(), finite, v.boolean(), v.array(v.string()), v.record(v.string(), v.string())]);
  type Groups = Record<string, Record<string, v.InferOutput<typeof setting>>>;
  return v.optional(
    v.pipe(
      v.union([v.pipe(v.string(), v.nonEmpty()), v.record(v.string(), v.record(v.string(), setting))]),
      doc<string | Groups>('', notes, 'text, or settings by name'),
    ),
  );
};

/** A number, or a text such as '0.5_2' that its reader takes apart. */
export const optionalNumberOrText = (unit: string, notes: Notes) =>
  v.optional(v.pipe(v.union([finite, v.string()]), doc<number | string>(unit, notes, 'number or text')));

/** One item or more; absent means something, which `why` says. */
export const optionalTexts = (notes: Notes) =>
  v.optional(
    v.pipe(v.array(v.pipe(v.string(), v.nonEmpty())), v.nonEmpty(), doc<string[]>('', notes, 'list of texts')),
  );

export const optionalNumbers = (notes: Notes) =>
  v.optional(v.pipe(v.array(finite), v.nonEmpty(), doc<number[]>('', notes, 'list of numbers')));

export const requiredText = (notes: Notes) => v.pipe(v.string(), v.nonEmpty(), doc<string>('', notes, 'text'));

export const pair = (byDefault: [number, number], [min, max]: [number, number], notes: Notes) =>
  v.optional(
    v.pipe(
      v.strictTuple([
        v.pipe(v.number(), v.minValue(min), v.ltValue(max)),
        v.pipe(v.number(), v.minValue(min), v.ltValue(max)),
      ]),
      doc<[number, number]>('', notes, `two numbers in [${min}, ${max})`),
    ),
    byDefault,
  );

/** One or several of `options`; one may be written without brackets. */
export const names = <const T extends readonly string[], const D extends NoInfer<T[number]>[] | undefined>(
  byDefault: D,
  options: T,
  notes: Notes,
) => {
  const one = v.pipe(
    v.picklist(options),
    v.transform((name) => [name]),
  );
  const several = v.pipe(v.array(v.picklist(options)), v.minLength(1));
  const range = `some of ${options.join(', ')}`;
  return withDefault(v.pipe(v.union([one, several]), doc<T[number][]>('', notes, range)), byDefault);
};

/** Free named values, checked by their reader. */
export const options = (notes: Notes) =>
  v.optional(
    v.pipe(
      v.record(v.string(), v.union([v.string(), finite, v.boolean()])),
      doc<Record<string, string | number | boolean>>('', notes, 'named values'),
    ),
    {},
  );

/** Numbers by free names. */
export const namedNumbers = (notes: Notes) =>
  v.optional(v.pipe(v.record(v.string(), finite), doc<Record<string, number>>('', notes, 'named numbers')), {});

/** A part of the config: unknown keys are errors; absent means all defaults. */
export const part = <T extends v.ObjectEntries>(entries: T) => v.strictObject(entries);

function numberRange(min: number, max: number): string {
  if (min === -Infinity && max === Infinity) return 'any number';
  if (max === Infinity) return `>= ${min}`;
  return `${min} to ${max}`;
}

/** `v.optional` for a schema of generic options, whose default TypeScript cannot compare. */
function withDefault<const S extends v.GenericSchema, const D>(schema: S, byDefault: D) {
  return v.optional(schema, byDefault as never) as v.OptionalSchema<S, D extends undefined ? undefined : never>;
}

/** A key of a schema, with its notes. */
export type DocumentedKey = KeyDoc & {
  path: string;
  /** undefined if absent means something. */
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

/** Every key of a schema in order, with its notes. */
export function keyDocs(schema: v.GenericSchema): DocumentedKey[] {
  const keys: DocumentedKey[] = [];
  const walk = (shape: SchemaShape, path: string): void => {
    const inner = shape.type === 'optional' && shape.wrapped ? shape.wrapped : shape;
    if (inner.entries) {
      for (const [key, entry] of Object.entries(inner.entries)) walk(entry, path ? `${path}.${key}` : key);
      return;
    }
    const notes = inner.pipe?.find((item) => item.type === 'metadata')?.metadata;
    if (!notes) throw new Error(`Config key "${path}" has no documentation; build it with keys.ts.`);
    keys.push({ path, default: shape.default, required: shape.type !== 'optional', ...notes });
  };
  walk(schema, '');
  return keys;
}

/** The keys and the parts they stand in: "actor.optim.lr" brings "actor" and "actor.optim". */
export function keysAndParts(schema: v.GenericSchema): Set<string> {
  const paths = keyDocs(schema).map((doc) => doc.path);
  return new Set(paths.flatMap((path) => path.split('.').map((_, i, keys) => keys.slice(0, i + 1).join('.'))));
}
