/** The subset of JSON schema that tools can use for their arguments, and the check of a call's arguments against it. */

import { InputError, shownValue } from '../errors.ts';

/** Schema of one argument. It can have other keys (`default`, `format`, ...) for the model to read, which are not checked. */
export interface ArgumentSchema {
  /** JSON type: string, number, integer, boolean, array, object or null. Default: any value, unless `anyOf` or `enum` restricts it. */
  type?: string;
  description?: string;
  /** Allowed values of any JSON type. */
  enum?: readonly unknown[];
  /** Alternatives. A value must match at least one of them. Keys next to `anyOf` are not checked. */
  anyOf?: readonly ArgumentSchema[];
  /** Schema of every element of an array. */
  items?: ArgumentSchema;
  minItems?: number;
  maxItems?: number;
  /** Schemas of an object's members. They are checked like the schemas of the arguments. */
  properties?: Readonly<Record<string, ArgumentSchema>>;
  required?: readonly string[];
  /**
   * Schema of members that `properties` does not name. Default: such members are not allowed; if `properties` is undefined, they can have
   * any value.
   */
  additionalProperties?: boolean | ArgumentSchema;
  minimum?: number;
  maximum?: number;
  /** Shortest text in characters. */
  minLength?: number;
  maxLength?: number;
}

/** Schema of all arguments of a tool, in the form that chat templates and verl's tool files use. */
export interface ToolSchema {
  /** Type of the arguments: always an object. */
  type: 'object';
  /** Schema of each argument, by name. */
  properties: Readonly<Record<string, ArgumentSchema>>;
  /** Names of the arguments that a call must have. */
  required?: readonly string[];
  /** Schema of arguments that `properties` does not name. Default: such arguments are not allowed. */
  additionalProperties?: boolean | ArgumentSchema;
}

/** The TypeScript type of arguments that fit a schema. */
export type ArgsOf<S extends ToolSchema> = {
  [K in keyof S['properties'] as K extends RequiredOf<S> ? K : never]: ValueOf<S['properties'][K]>;
} & { [K in keyof S['properties'] as K extends RequiredOf<S> ? never : K]?: ValueOf<S['properties'][K]> };

type RequiredOf<S extends ToolSchema> = S['required'] extends readonly (infer K)[] ? K : never;

type ValueOf<A> = A extends { enum: readonly (infer E)[] }
  ? E
  : A extends { anyOf: readonly (infer B)[] }
    ? ValueOf<B>
    : A extends { type: 'array'; items: infer I }
      ? ValueOf<I>[]
      : A extends { type: keyof Values }
        ? Values[A['type']]
        : unknown;

interface Values {
  string: string;
  number: number;
  integer: number;
  boolean: boolean;
  array: unknown[];
  object: Record<string, unknown>;
  null: null;
}

const TYPES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'];

/** Returns what is wrong with the arguments, in words that the model reads; null if they match the schema. */
export function argumentProblem(args: Record<string, unknown>, schema: ToolSchema): string | null {
  const missing = (schema.required ?? []).find((key) => args[key] === undefined);
  if (missing !== undefined) return `argument "${missing}" is missing`;
  for (const [key, value] of Object.entries(args)) {
    // schema.properties[key] alone would be wrong, because a key such as "constructor" is a property of every object.
    const expected = Object.hasOwn(schema.properties, key) ? schema.properties[key] : schema.additionalProperties;
    if (!expected) return `unknown argument "${key.slice(0, 40)}"`;
    if (expected === true) continue;
    const problem = valueProblem(value, expected);
    if (problem !== null) return `argument "${key}" ${problem}`;
  }
  return null;
}

/** Returns what is wrong with one value, as the end of a sentence; null if it matches the schema. */
export function valueProblem(value: unknown, schema: ArgumentSchema): string | null {
  if (schema.anyOf) {
    const problems = schema.anyOf.map((alternative) => valueProblem(value, alternative));
    return problems.includes(null) ? null : [...new Set(problems)].join(', or ');
  }
  if (!hasType(value, schema.type)) return `must be of type ${schema.type}`;
  if (schema.enum && !schema.enum.some((choice) => isSame(choice, value)))
    return `must be one of ${schema.enum.map(textOf).join(', ')}`;
  if (typeof value === 'number') return boundProblem(value, schema);
  if (typeof value === 'string') return countProblem(value.length, 'characters', schema.minLength, schema.maxLength);
  if (Array.isArray(value)) return itemProblem(value, schema);
  if (isObject(value) && (schema.properties ?? schema.additionalProperties ?? null) !== null)
    return nestedProblem(value, schema);
  return null;
}

const textOf = (choice: unknown): string => (typeof choice === 'string' ? choice : JSON.stringify(choice));

const isSame = (choice: unknown, value: unknown): boolean =>
  choice === value || (typeof choice === 'object' && JSON.stringify(choice) === JSON.stringify(value));

function countProblem(count: number, what: string, least?: number, most?: number): string | null {
  if (count > (most ?? Infinity)) return `has ${count} ${what}, at most ${most} are allowed`;
  return count < (least ?? 0) ? `has ${count} ${what}, at least ${least} are needed` : null;
}

function boundProblem(value: number, { minimum, maximum }: ArgumentSchema): string | null {
  if (value < (minimum ?? -Infinity)) return `must be at least ${minimum}`;
  return value > (maximum ?? Infinity) ? `must be at most ${maximum}` : null;
}

function itemProblem(values: unknown[], { items, minItems, maxItems }: ArgumentSchema): string | null {
  const wrongCount = countProblem(values.length, 'elements', minItems, maxItems);
  if (!items || wrongCount !== null) return wrongCount;
  for (const [i, value] of values.entries()) {
    const problem = valueProblem(value, items);
    if (problem !== null) return `at place ${i} ${problem}`;
  }
  return null;
}

function nestedProblem(value: Record<string, unknown>, schema: ArgumentSchema): string | null {
  const problem = argumentProblem(value, { properties: {}, ...schema, type: 'object' });
  return problem === null ? null : `has a problem: ${problem}`;
}

/** Returns true if the value has this type of JSON schema. If the type is unknown, returns true for every value. */
function hasType(value: unknown, type: string | undefined): boolean {
  if (type === 'integer') return Number.isInteger(value);
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return isObject(value);
  if (type === 'null') return value === null;
  return type === 'string' || type === 'number' || type === 'boolean' ? typeof value === type : true;
}

const isList = (given: unknown): boolean => Array.isArray(given) && given.length > 0;
const isText = (given: unknown): boolean => typeof given === 'string';
/** Allows null, which some clients write for a bound that is absent. Readers of a schema treat it as absent. */
const isNumber = (given: unknown): boolean => given === null || Number.isFinite(given);
const [LIST, NUMBER] = ['a list of at least one', 'a number'];
/** Check of each keyword whose value the check of a call's arguments and the grammar of calls read, and what is allowed. */
const KEYWORDS: readonly [string, (given: unknown) => boolean, string][] = [
  ['enum', isList, LIST],
  ['anyOf', isList, LIST],
  ['properties', isObject, 'an object with a schema by each name'],
  ['required', (given) => Array.isArray(given) && given.every(isText), 'a list of names'],
  ...['minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems'].map(
    (keyword): [string, (given: unknown) => boolean, string] => [keyword, isNumber, NUMBER],
  ),
];

/**
 * Returns what is malformed in a schema or in one inside it, as "PLACE is FOUND; allowed: ALLOWED"; undefined if nothing is. A list
 * (`items` of older drafts), true and false are accepted: they allow any value.
 */
export function schemaProblem(schema: unknown, place: string): string | undefined {
  if (typeof schema === 'boolean' || Array.isArray(schema)) return undefined;
  if (!isObject(schema)) return `${place} is ${shownValue(schema)}; allowed: a JSON schema`;
  const wrong = KEYWORDS.find(([keyword, isValid]) => schema[keyword] !== undefined && !isValid(schema[keyword]));
  if (wrong) return `${place}.${wrong[0]} is ${shownValue(schema[wrong[0]])}; allowed: ${wrong[2]}`;
  const { anyOf = [], properties = {}, items = true, additionalProperties } = schema as Record<string, object | true>;
  const inner: [string, unknown][] = [
    ...Object.entries(anyOf).map(([i, one]): [string, unknown] => [`anyOf[${i}]`, one]),
    ...Object.entries(properties),
    ['items', items],
    ['additionalProperties', additionalProperties ?? true],
  ];
  for (const [key, one] of inner) {
    const problem = schemaProblem(one, `${place}.${key}`);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Throws InputError if a schema does not describe arguments, contradicts itself or has an unknown type. */
export function checkToolSchema(tool: string, schema: ToolSchema): void {
  if (!isObject(schema) || !isObject(schema.properties))
    throw new InputError(
      `Tool "${tool}" has the parameters ${shownValue(schema)}. Give { type: 'object', properties: { ... } }, with no properties if it takes none.`,
    );
  const problem = schemaProblem(schema, 'parameters');
  if (problem !== undefined) throw new InputError(`Tool "${tool}": ${problem}. Change its parameters.`);
  const unknown = schema.required?.find((key) => !Object.hasOwn(schema.properties, key));
  if (unknown !== undefined)
    throw new InputError(
      `Tool "${tool}" requires "${unknown}", which is not among its properties: ${Object.keys(schema.properties).join(', ')}. Add it to them, or leave it out.`,
    );
  for (const [key, { type }] of Object.entries(schema.properties))
    if (type !== undefined && !TYPES.includes(type))
      throw new InputError(
        `Tool "${tool}": argument "${key}" has type "${type}"; allowed: ${TYPES.join(', ')}. Change it, or leave it out.`,
      );
}

/** True for an object that is neither null nor an array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
