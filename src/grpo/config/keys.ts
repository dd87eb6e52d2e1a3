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

/** The notes that `docs/config.md` and `--help` print beside a key. */
type KeyDoc = {
  /** 'prompts', 'tokens', 'nats', ...; '' for names and flags. */
  unit: string;
  why: string;
  /** The allowed values, as a reader says them: '>= 1', 'a | b'. */
  range: string;
};

const doc = <T>(unit: string, why: string, range: string) => v.metadata<T, KeyDoc>({ unit, why, range });

const countOf = (unit: string, why: string, min: number) =>
  v.pipe(
    v.number(),
    v.integer(),
    v.minValue(min),
    v.maxValue(mostOf(unit)),
    doc<number>(unit, why, `integer >= ${min}`),
  );

const mostOf = (unit: string): number => MOST[unit] ?? MOST_OF_OTHERS;

/** An integer of at least `min` (1 unless told). */
export const count = (byDefault: number, unit: string, why: string, min = 1) =>
  v.optional(countOf(unit, why, min), byDefault);

/** An integer where 0 is off; verl's -1 is read as 0. */
export const countOrOff = (byDefault: number, unit: string, why: string) =>
  v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(-1),
      v.maxValue(mostOf(unit)),
      v.transform((value) => Math.max(0, value)),
      doc<number>(unit, why, 'integer >= 0, or -1 = 0'),
    ),
    byDefault,
  );

/** Like `count`, without a default: absent means something, which `why` says. */
export const optionalCount = (unit: string, why: string, min = 1) => v.optional(countOf(unit, why, min));

/** Like `optionalCount`, and verl's -1 for all. */
export const optionalCountOrAll = (unit: string, why: string) =>
  v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.check((value) => value === -1 || value >= 1),
      v.maxValue(mostOf(unit)),
      doc<number>(unit, why, 'integer >= 1, or -1'),
    ),
  );

const numberOf = (unit: string, why: string, min: number, max: number) =>
  v.pipe(finite, v.minValue(min), v.maxValue(max), doc<number>(unit, why, numberRange(min, max)));

/** A number in [min, max]. */
export const number = (byDefault: number, [min, max]: [number, number], unit: string, why: string) =>
  v.optional(numberOf(unit, why, min, max), byDefault);

/** Like `number`, without a default. */
export const optionalNumber = ([min, max]: [number, number], unit: string, why: string) =>
  v.optional(numberOf(unit, why, min, max));

/** A number strictly above 0. */
export const positive = (byDefault: number, unit: string, why: string) =>
  v.optional(v.pipe(finite, v.gtValue(0), v.minValue(MIN_FLOAT32), doc<number>(unit, why, '> 0')), byDefault);

export const flag = (byDefault: boolean, why: string) =>
  v.optional(v.pipe(v.boolean(), doc<boolean>('', why, 'true | false')), byDefault);

/** Off, on, or on for so many of a unit. */
export const flagOrCount = (byDefault: boolean, unit: string, why: string) =>
  v.optional(
    v.pipe(
      v.union([v.boolean(), v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(mostOf(unit)))]),
      doc<boolean | number>(unit, why, 'true | false | integer >= 1'),
    ),
    byDefault,
  );

export const optionalFlag = (why: string) => v.optional(v.pipe(v.boolean(), doc<boolean>('', why, 'true | false')));

export const choice = <const T extends readonly string[]>(byDefault: NoInfer<T[number]>, options: T, why: string) =>
  v.optional(v.pipe(v.picklist(options), doc<T[number]>('', why, options.join(' | '))), byDefault as never);

/** Like `choice`, whatever the case of its letters and with or without underscores: 'sign_sgd' is SignSGD. */
export const nameOf = <const T extends readonly string[]>(byDefault: NoInfer<T[number]>, options: T, why: string) => {
  const plain = (name: string) => name.replaceAll('_', '').toLowerCase();
  const named = v.transform((name: string) => options.find((option) => plain(option) === plain(name)) ?? name);
  const docs = doc<T[number]>('', why, options.join(' | '));
  return v.optional(v.pipe(v.string(), named, v.picklist(options), docs), byDefault as never);
};

/** One of names that may grow until a config is read; its range is what is known when it is asked for. */
const knownOf = <T extends string>(known: () => readonly T[], why: string) =>
  v.pipe(
    v.string(),
    v.check((name) => known().some((one) => one === name)),
    v.transform((name) => name as T),
    v.metadata<T, KeyDoc>({
      unit: '',
      why,
      get range() {
        return known().join(' | ');
      },
    }),
  );

export const known = <T extends string>(byDefault: T, names: () => readonly T[], why: string) =>
  v.optional(knownOf(names, why), byDefault);

export const optionalKnown = <T extends string>(names: () => readonly T[], why: string) =>
  v.optional(knownOf(names, why));

export const optionalChoice = <const T extends readonly string[]>(options: T, why: string) =>
  v.optional(v.pipe(v.picklist(options), doc<T[number]>('', why, options.join(' | '))));

const textOf = (why: string) => v.pipe(v.string(), v.nonEmpty(), doc<string>('', why, 'text'));

export const text = (byDefault: string, why: string) => v.optional(textOf(why), byDefault);

export const optionalText = (why: string) => v.optional(textOf(why));

/** A text, a list of texts, or texts by name; absent means something, which `why` says. */
export const optionalTextOrTexts = (why: string) => {
  const one = v.pipe(v.string(), v.nonEmpty());
  const named = v.pipe(
    v.record(v.string(), one),
    v.check((texts) => Object.keys(texts).length > 0),
  );
  const several = v.pipe(v.array(one), v.nonEmpty());
  return v.optional(
    v.pipe(
      v.union([one, several, named]),
      doc<string | string[] | Record<string, string>>('', why, 'text, list of texts, or texts by name'),
    ),
  );
};

/** The path of a file, or what it would hold; the reader of `T` checks that. */
export const optionalPathOr = <T extends object>(why: string, range: string) => {
  const tree = v.custom<T>((value) => typeof value === 'object' && value !== null && !Array.isArray(value));
  return v.optional(
    v.pipe(v.union([v.pipe(v.string(), v.nonEmpty()), tree]), doc<string | T>('', why, `path, or ${range}`)),
  );
};

/** Named groups of settings, checked by their reader, or the path of a file with them. */
export const optionalTextOrGroups = (why: string) => {
  const setting = v.union([v.string(), finite, v.boolean(), v.array(v.string()), v.record(v.string(), v.string())]);
  type Groups = Record<string, Record<string, v.InferOutput<typeof setting>>>;
  return v.optional(
    v.pipe(
      v.union([v.pipe(v.string(), v.nonEmpty()), v.record(v.string(), v.record(v.string(), setting))]),
      doc<string | Groups>('', why, 'text, or settings by name'),
    ),
  );
};

/** A number, or a text such as '0.5_2' that its reader takes apart. */
export const optionalNumberOrText = (unit: string, why: string) =>
  v.optional(v.pipe(v.union([finite, v.string()]), doc<number | string>(unit, why, 'number or text')));

/** One item or more; absent means something, which `why` says. */
export const optionalTexts = (why: string) =>
  v.optional(v.pipe(v.array(v.pipe(v.string(), v.nonEmpty())), v.nonEmpty(), doc<string[]>('', why, 'list of texts')));

export const optionalNumbers = (why: string) =>
  v.optional(v.pipe(v.array(finite), v.nonEmpty(), doc<number[]>('', why, 'list of numbers')));

export const requiredText = (why: string) => textOf(why);

export const pair = (byDefault: [number, number], [min, max]: [number, number], why: string) =>
  v.optional(
    v.pipe(
      v.strictTuple([
        v.pipe(v.number(), v.minValue(min), v.ltValue(max)),
        v.pipe(v.number(), v.minValue(min), v.ltValue(max)),
      ]),
      doc<[number, number]>('', why, `two numbers in [${min}, ${max})`),
    ),
    byDefault,
  );

/** One or several of `options`; one may be written without brackets. */
export const names = <const T extends readonly string[]>(byDefault: NoInfer<T[number]>[], options: T, why: string) =>
  v.optional(namesOf(options, why), byDefault as never);

/** Like `names`, without a default. */
export const optionalNames = <const T extends readonly string[]>(options: T, why: string) =>
  v.optional(namesOf(options, why));

const namesOf = <const T extends readonly string[]>(options: T, why: string) => {
  const range = `some of ${options.join(', ')}`;
  const one = v.pipe(
    v.picklist(options),
    v.transform((name) => [name]),
  );
  const several = v.pipe(v.array(v.picklist(options)), v.minLength(1));
  return v.pipe(v.union([one, several]), doc<T[number][]>('', why, range));
};

/** Free named values, checked by their reader. */
export const options = (why: string) =>
  v.optional(
    v.pipe(
      v.record(v.string(), v.union([v.string(), finite, v.boolean()])),
      doc<Record<string, string | number | boolean>>('', why, 'named values'),
    ),
    {},
  );

/** Numbers by free names. */
export const namedNumbers = (why: string) =>
  v.optional(v.pipe(v.record(v.string(), finite), doc<Record<string, number>>('', why, 'named numbers')), {});

/** A part of the config: unknown keys are errors; absent means all defaults. */
export const part = <T extends v.ObjectEntries>(entries: T) => v.strictObject(entries);

function numberRange(min: number, max: number): string {
  if (min === -Infinity && max === Infinity) return 'any number';
  if (max === Infinity) return `>= ${min}`;
  return `${min} to ${max}`;
}
