/**
 * Converts an MCP tool's `inputSchema`, which can be any JSON Schema, to a ToolSchema. $ref values are replaced by their targets, and sizes
 * are limited. Keywords that constrained decoding cannot enforce, such as `allOf`, are reported; only the server checks them.
 */

import type { ArgumentSchema, ToolSchema } from '../../tasks/toolSchema.ts';
import { isObject } from '../../tasks/toolSchema.ts';

/** Keywords that constrained tool calls do not enforce, with the number of times that each occurs. */
export type Notes = Map<string, number>;

type Json = Record<string, unknown>;

const MAX_DEPTH = 16;
/** Maximum number of subschemas in the schema of one tool, after $ref values are replaced. */
const MAX_PARTS = 200;
const MAX_ALTERNATIVES = 64;
const MAX_CHOICES = 500;
/** Maximum numbers of characters: of one description, of all descriptions of a tool, of a name or a short value. */
const [MAX_TEXT, MAX_TEXTS, MAX_SMALL] = [1000, 20_000, 200];
/** Largest `maxLength` and `minLength` that are enforced. A grammar needs a state for each character. */
const [MAX_LENGTH, MAX_LEAST] = [1000, 64];

/** Keywords that constrained calls do not enforce; only the server checks them. */
const LEFT_OUT = [
  ...['pattern', 'format', 'contentEncoding', 'multipleOf', 'uniqueItems', 'contains', 'not', 'if', 'propertyNames'],
  ...['patternProperties', 'minProperties', 'maxProperties', 'dependentRequired', 'dependentSchemas', 'dependencies'],
  ...['unevaluatedProperties', 'unevaluatedItems', '$dynamicRef', '$recursiveRef', 'prefixItems'],
];

/** Converts a tool's input schema; undefined if it is not the schema of an object. */
export function readInputSchema(schema: unknown, notes: Notes): ToolSchema | undefined {
  if (!isObject(schema)) return undefined;
  const { type = 'object', anyOf, properties, additionalProperties, ...rest } = new Reader(schema, notes).read(schema);
  if (type !== 'object') return undefined;
  const isOpen = anyOf !== undefined || schema['additionalProperties'] !== undefined || combined(schema).length > 0;
  return {
    ...rest,
    type,
    properties: properties ?? {},
    ...(properties ? additionalProperties && { additionalProperties } : isOpen && { additionalProperties: true }),
  };
}

class Reader {
  readonly #root: unknown;
  readonly #notes: Notes;
  #parts = 0;
  #texts = 0;

  constructor(root: unknown, notes: Notes) {
    this.#root = root;
    this.#notes = notes;
  }

  /**
   * Converts a subschema.
   * @param within $ref values that were followed to reach the subschema, to detect recursion
   */
  read(part: unknown, depth = 0, within: readonly string[] = []): ArgumentSchema {
    if (part === true || part === undefined) return {};
    if (!isObject(part)) return this.#any(part === false ? 'false' : 'an invalid schema');
    if (depth > MAX_DEPTH) return this.#any(`nested over ${MAX_DEPTH} deep`);
    if (++this.#parts > MAX_PARTS) return this.#any(`over ${MAX_PARTS} parts`);
    for (const keyword of LEFT_OUT) if (part[keyword] !== undefined) this.#note(keyword);
    return { ...this.#words(part), ...this.#value(part, depth, within) };
  }

  #note(keyword: string): void {
    this.#notes.set(keyword, (this.#notes.get(keyword) ?? 0) + 1);
  }

  #any(why: string): ArgumentSchema {
    this.#note(why);
    return {};
  }

  /**
   * Converts a subschema without its descriptions: a $ref, a list of allowed values, one or more types, or, without a type, alternatives
   * (allOf, anyOf, oneOf).
   */
  #value(part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    if (typeof part['$ref'] === 'string') return this.#referred(part['$ref'], depth, within);
    const choices = this.#choices(part);
    if (choices) return choices;
    const { type = implied(part) } = part;
    const types: unknown[] = Array.isArray(type) ? type : type === undefined ? [] : [type];
    const others = combined(part);
    if (types.length > 0) {
      if (others.length > 0) this.#note('allOf, anyOf or oneOf beside a type');
      const all = part['nullable'] === true ? new Set([...types, 'null']) : types;
      return anyOf(Array.from(all, (one) => this.#ofType(one, part, depth, within)));
    }
    if (others.length > 1 && part['allOf'] !== undefined) return this.#any('allOf');
    if (others.length > MAX_ALTERNATIVES) return this.#any(`over ${MAX_ALTERNATIVES} alternatives`);
    return anyOf(others.map((one) => this.read(one, depth + 1, within)));
  }

  #referred(ref: string, depth: number, within: readonly string[]): ArgumentSchema {
    if (within.includes(ref)) return this.#any('a $ref in itself');
    const target = ref.startsWith('#') ? pointed(this.#root, ref.slice(1)) : undefined;
    if (target === undefined) return this.#any('a $ref elsewhere');
    return this.read(target, depth + 1, [...within, ref]);
  }

  #ofType(type: unknown, part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    if (type === 'object') return this.#object(part, depth, within);
    if (type === 'array') return this.#array(part, depth, within);
    if (type === 'string') return { type, ...this.#length(part) };
    if (type === 'number' || type === 'integer') return { type, ...this.#bounds(part, type) };
    return type === 'boolean' || type === 'null' ? { type } : this.#any(`type ${String(type).slice(0, 20)}`);
  }

  #object(part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    const required = listOf(part['required']).filter((name) => typeof name === 'string');
    const named = isObject(part['properties']) ? part['properties'] : {};
    const names = [...new Set([...Object.keys(named), ...required])].filter(({ length }) => length <= MAX_SMALL);
    if (Object.keys(named).some(({ length }) => length > MAX_SMALL)) this.#note(`a name over ${MAX_SMALL} characters`);
    const properties = names.map((name) => [name, this.read(own(named, name), depth + 1, within)] as const);
    const isOpen = names.length === 0 || isObject(part['patternProperties']) || combined(part).some(namesMembers);
    const { additionalProperties: more = isOpen } = part;
    const others = isObject(more) && Object.keys(more).length > 0 ? this.read(more, depth + 1, within) : more !== false;
    const isFree = names.length === 0 && others === true;
    return {
      type: 'object',
      ...(!isFree && { properties: Object.fromEntries(properties) }),
      ...(required.length > 0 && { required: required.filter((name) => name.length <= MAX_SMALL) }),
      ...(!isFree && others !== false && { additionalProperties: others }),
    };
  }

  #array({ items, minItems, maxItems }: Json, depth: number, within: readonly string[]): ArgumentSchema {
    if (isCount(minItems) && minItems > 1) this.#note('minItems');
    if (isCount(maxItems)) this.#note('maxItems');
    const item = this.read(items, depth + 1, within);
    return {
      type: 'array',
      ...(Object.keys(item).length > 0 && { items: item }),
      ...(isCount(minItems) && { minItems }),
      ...(isCount(maxItems) && { maxItems }),
    };
  }

  #length({ minLength, maxLength }: Json): ArgumentSchema {
    const isLong = isCount(maxLength) && maxLength > MAX_LENGTH;
    if (isLong) this.#note('maxLength');
    if (isCount(minLength) && minLength > MAX_LEAST) this.#note('minLength');
    return {
      ...(isCount(minLength) && minLength > 0 && { minLength }),
      ...(isCount(maxLength) && !isLong && { maxLength }),
    };
  }

  #bounds({ minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below }: Json, type: string): ArgumentSchema {
    const step = type === 'integer' ? 1 : 0;
    const least = Math.max(numberOr(minimum, -Infinity), numberOr(above, -Infinity) + step);
    const most = Math.min(numberOr(maximum, Infinity), numberOr(below, Infinity) - step);
    if (least > -Infinity && !(least === 0 || most - least < 256)) this.#note('minimum');
    if (most < Infinity && !(most - least < 256)) this.#note('maximum');
    if (step === 0 && (above !== undefined || below !== undefined)) this.#note('exclusiveMinimum, exclusiveMaximum');
    return { ...(least > -Infinity && { minimum: least }), ...(most < Infinity && { maximum: most }) };
  }

  #choices(part: Json): ArgumentSchema | undefined {
    const choices = 'const' in part ? [part['const']] : listOf(part['enum']);
    if (choices.length === 0) return undefined;
    if (choices.length > MAX_CHOICES || !(textLength(choices) <= MAX_TEXTS)) {
      this.#note('enum');
      return undefined;
    }
    const all = part['nullable'] === true ? [...new Set([...choices, null])] : choices;
    return { ...(all.every((choice) => typeof choice === 'string') && { type: 'string' }), enum: all };
  }

  /** Returns the keywords that only inform the model (description, default, format, pattern), limited in size. */
  #words(part: Json): Json {
    const words: Json = {};
    const { description } = part;
    if (typeof description === 'string' && this.#texts < MAX_TEXTS) {
      if (description.length > MAX_TEXT) this.#note('description');
      this.#texts += Math.min(description.length, MAX_TEXT);
      words['description'] = cutText(description, MAX_TEXT);
    }
    for (const key of ['default', 'format', 'pattern'])
      if (part[key] !== undefined && textLength(part[key]) <= MAX_SMALL) words[key] = part[key];
    return words;
  }
}

/**
 * Joins alternatives to an `anyOf` without duplicates. A single alternative is returned as it is; an empty list becomes {}, which allows
 * any value.
 */
function anyOf(alternatives: ArgumentSchema[]): ArgumentSchema {
  const flat = alternatives.flatMap(({ anyOf, ...one }) => anyOf ?? [one]);
  const different = [...new Map(flat.map((one) => [JSON.stringify(one), one])).values()];
  return different.length > 1 ? { anyOf: different } : (different[0] ?? {});
}

const combined = (part: Json): unknown[] => ['allOf', 'anyOf', 'oneOf'].flatMap((keyword) => listOf(part[keyword]));

/** False for an alternative in `anyOf` or `oneOf` that only lists required properties, without a type or properties. */
const namesMembers = (part: unknown): boolean => !isObject(part) || Object.keys(part).some((key) => key !== 'required');

const own = (members: Json, name: string): unknown => (Object.hasOwn(members, name) ? members[name] : undefined);

/** Returns the type of a subschema that has no `type` but keywords of objects or arrays; undefined otherwise. */
function implied(part: Json): string | undefined {
  if (part['properties'] !== undefined || part['additionalProperties'] !== undefined || Array.isArray(part['required']))
    return 'object';
  return part['items'] !== undefined || part['prefixItems'] !== undefined ? 'array' : undefined;
}

/** Returns the value that a JSON pointer refers to; undefined if the pointer refers to nothing. */
function pointed(root: unknown, pointer: string): unknown {
  if (pointer !== '' && !pointer.startsWith('/')) return undefined;
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce<unknown>((at, name) => (typeof at === 'object' && at !== null ? own(at as Json, name) : undefined), root);
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const numberOr = (value: unknown, other: number): number => (typeof value === 'number' ? value : other);

/** Returns the length of a value's JSON; Infinity if the value is nested too deeply for JSON.stringify. */
function textLength(value: unknown): number {
  try {
    return JSON.stringify(value).length;
  } catch {
    return Infinity;
  }
}

/** Truncates a longer text to `most` characters followed by "...". */
export const cutText = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most)}...`;
