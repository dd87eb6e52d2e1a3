/** Building blocks of the config schemas: every key carries its unit and the reason for its default. */

import * as v from 'valibot';

export const ANY: [number, number] = [0, Infinity];
export const SHARE: [number, number] = [0, 1];

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
  v.pipe(v.number(), v.integer(), v.minValue(min), v.maxValue(2 ** 31), doc<number>(unit, why, `integer >= ${min}`));

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
      v.maxValue(2 ** 31),
      v.transform((value) => Math.max(0, value)),
      doc<number>(unit, why, 'integer >= 0, or -1 = 0'),
    ),
    byDefault,
  );

/** As `count`, without a default: absent means something, which `why` says. */
export const optionalCount = (unit: string, why: string, min = 1) => v.optional(countOf(unit, why, min));

/** As `optionalCount`, and verl's -1 for all. */
export const optionalCountOrAll = (unit: string, why: string) =>
  v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.check((value) => value === -1 || value >= 1),
      doc<number>(unit, why, 'integer >= 1, or -1'),
    ),
  );

const numberOf = (unit: string, why: string, min: number, max: number) =>
  v.pipe(v.number(), v.finite(), v.minValue(min), v.maxValue(max), doc<number>(unit, why, numberRange(min, max)));

/** A number in [min, max]. */
export const number = (byDefault: number, [min, max]: [number, number], unit: string, why: string) =>
  v.optional(numberOf(unit, why, min, max), byDefault);

/** As `number`, without a default. */
export const optionalNumber = ([min, max]: [number, number], unit: string, why: string) =>
  v.optional(numberOf(unit, why, min, max));

/** A number strictly above 0. */
export const positive = (byDefault: number, unit: string, why: string) =>
  v.optional(v.pipe(v.number(), v.finite(), v.gtValue(0), doc<number>(unit, why, '> 0')), byDefault);

export const flag = (byDefault: boolean, why: string) =>
  v.optional(v.pipe(v.boolean(), doc<boolean>('', why, 'true | false')), byDefault);

export const optionalFlag = (why: string) => v.optional(v.pipe(v.boolean(), doc<boolean>('', why, 'true | false')));

export const choice = <const T extends readonly string[]>(byDefault: NoInfer<T[number]>, options: T, why: string) =>
  v.optional(v.pipe(v.picklist(options), doc<T[number]>('', why, options.join(' | '))), byDefault as never);

/** As `choice`, whatever the case of its letters and with or without underscores: 'sign_sgd' is SignSGD. */
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

/** A number, or a text such as '0.5_2' that its reader takes apart. */
export const optionalNumberOrText = (unit: string, why: string) =>
  v.optional(
    v.pipe(v.union([v.pipe(v.number(), v.finite()), v.string()]), doc<number | string>(unit, why, 'number or text')),
  );

/** One item or more; absent means something, which `why` says. */
export const optionalTexts = (why: string) =>
  v.optional(v.pipe(v.array(v.pipe(v.string(), v.nonEmpty())), v.nonEmpty(), doc<string[]>('', why, 'list of texts')));

export const optionalNumbers = (why: string) =>
  v.optional(v.pipe(v.array(v.pipe(v.number(), v.finite())), v.nonEmpty(), doc<number[]>('', why, 'list of numbers')));

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

/** As `names`, without a default. */
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
      v.record(v.string(), v.union([v.string(), v.number(), v.boolean()])),
      doc<Record<string, string | number | boolean>>('', why, 'named values'),
    ),
    {},
  );

/** Numbers by free names. */
export const namedNumbers = (why: string) =>
  v.optional(
    v.pipe(v.record(v.string(), v.pipe(v.number(), v.finite())), doc<Record<string, number>>('', why, 'named numbers')),
    {},
  );

/** A part of the config: unknown keys are errors; absent means all defaults. */
export const part = <T extends v.ObjectEntries>(entries: T) => v.strictObject(entries);

function numberRange(min: number, max: number): string {
  if (min === -Infinity && max === Infinity) return 'any number';
  if (max === Infinity) return `>= ${min}`;
  return `${min} to ${max}`;
}
