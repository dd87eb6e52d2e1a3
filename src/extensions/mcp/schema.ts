/**
 * Converts an MCP tool's `inputSchema`, which can be any JSON Schema, to a ToolSchema. References are resolved, combinations
 * become `anyOf`, and sizes are limited. Keywords that a grammar cannot enforce are dropped or left to the server, and noted.
 */

import type { ArgumentSchema, ToolSchema } from '../../tasks/toolSchema.ts';
import { isObject } from '../../tasks/toolSchema.ts';

/** Keywords that constrained calls do not enforce, with the number of their occurrences. */
export type Notes = Map<string, number>;

type Json = Record<string, unknown>;
type Members = Readonly<Record<string, ArgumentSchema>>;
const OBJECT = { type: 'object' };

const MAX_DEPTH = 16;
/** Most parts of one tool's schema after its references are resolved. */
const MAX_PARTS = 200;
const MAX_ALTERNATIVES = 64;
const MAX_CHOICES = 500;
/** Limits in characters: of one text for the model, of all texts of a tool, of a name or a small value. */
const [MAX_TEXT, MAX_TEXTS, MAX_SMALL] = [1000, 20_000, 200];
/** Largest `maxLength` and `minLength`, because a grammar spells them out one character at a time. */
const [MAX_LENGTH, MAX_LEAST] = [1000, 64];

/** Keywords that are left to the server. */
const LEFT_OUT = [
  ...['pattern', 'format', 'contentEncoding', 'multipleOf', 'uniqueItems', 'contains', 'not', 'if', 'propertyNames'],
  ...['patternProperties', 'minProperties', 'maxProperties', 'dependentRequired', 'dependentSchemas', 'dependencies'],
  ...['unevaluatedProperties', 'unevaluatedItems', '$dynamicRef', '$recursiveRef', 'additionalItems'],
];

/** Returns undefined if the schema is not one of an object. */
export function readInputSchema(schema: unknown, notes: Notes): ToolSchema | undefined {
  if (!isObject(schema)) return undefined;
  const reader = new Reader(schema, notes);
  const root = asObject(reader.read(schema, 0, []), (keyword) => reader.note(keyword));
  if (!root || (root.type !== undefined && root.type !== 'object')) return undefined;
  const { properties, additionalProperties, ...rest } = root;
  const isOpen = schema['additionalProperties'] !== undefined;
  return {
    ...rest,
    type: 'object',
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

  note(keyword: string): void {
    this.#notes.set(keyword, (this.#notes.get(keyword) ?? 0) + 1);
  }

  /** Converts a part of the schema. @param within references that contain this part */
  read(part: unknown, depth: number, within: readonly string[]): ArgumentSchema {
    if (part === true || part === undefined) return {};
    if (!isObject(part)) return this.#any(part === false ? 'false' : 'a schema that is none');
    if (depth > MAX_DEPTH) return this.#any(`nested over ${MAX_DEPTH} deep`);
    if (++this.#parts > MAX_PARTS) return this.#any(`over ${MAX_PARTS} parts`);
    const { $ref, allOf, anyOf, oneOf, ...rest } = part;
    let read = this.#plain(rest, depth, within);
    if (typeof $ref === 'string') read = this.#both(read, this.#referred($ref, depth, within));
    for (const one of listOf(allOf)) read = this.#both(read, this.read(one, depth + 1, within));
    for (const several of [anyOf, oneOf]) read = this.#both(read, this.#oneOf(listOf(several), depth, within));
    return read;
  }

  #any(why: string): ArgumentSchema {
    this.note(why);
    return {};
  }

  #oneOf(alternatives: unknown[], depth: number, within: readonly string[]): ArgumentSchema {
    if (alternatives.length === 0) return {};
    if (alternatives.length > MAX_ALTERNATIVES) return this.#any(`over ${MAX_ALTERNATIVES} alternatives`);
    return anyOf(alternatives.map((one) => this.read(one, depth + 1, within)));
  }

  #referred(ref: string, depth: number, within: readonly string[]): ArgumentSchema {
    if (within.includes(ref)) return this.#any('a $ref in itself');
    const target = ref.startsWith('#') ? pointed(this.#root, ref.slice(1)) : undefined;
    if (target === undefined) return this.#any('a $ref elsewhere');
    return this.read(target, depth + 1, [...within, ref]);
  }

  /** Converts a part without combinations and references. */
  #plain(part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    for (const keyword of LEFT_OUT) if (part[keyword] !== undefined) this.note(keyword);
    const types = (Array.isArray(part['type']) ? part['type'] : [part['type'] ?? implied(part)]) as unknown[];
    const nullable = part['nullable'] === true && !types.includes('null') && types[0] !== undefined;
    const read = anyOf(
      [...types, ...(nullable ? ['null'] : [])].map((type) => this.#ofType(type, part, depth, within)),
    );
    return { ...this.#words(part), ...this.#choices(part, read) };
  }

  #ofType(type: unknown, part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    switch (type) {
      case 'object':
        return this.#object(part, depth, within);
      case 'array':
        return this.#array(part, depth, within);
      case 'string':
        return { type, ...this.#length(part) };
      case 'number':
      case 'integer':
        return { type, ...this.#bounds(part, type) };
      case 'boolean':
      case 'null':
        return { type };
      default:
        return type === undefined ? {} : this.#any(`type ${small(type)}`);
    }
  }

  #object(part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    const { additionalProperties: more } = part;
    const required = listOf(part['required']).filter((name) => typeof name === 'string');
    const given = isObject(part['properties']) ? Object.entries(part['properties']) : [];
    const names = [
      ...given,
      ...required.filter((name) => !given.some(([key]) => key === name)).map((name) => [name, {}]),
    ];
    const properties: [string, ArgumentSchema][] = [];
    for (const [name, schema] of names as [string, unknown][])
      if (name.length > MAX_SMALL) this.note(`a name over ${MAX_SMALL} characters`);
      else properties.push([name, this.read(schema, depth + 1, within)]);
    const isClosed = more === false || (more === undefined && names.length > 0 && !isObject(part['patternProperties']));
    const others = isObject(more) && Object.keys(more).length > 0 ? this.read(more, depth + 1, within) : !isClosed;
    return {
      ...OBJECT,
      ...((names.length > 0 || isClosed) && { properties: Object.fromEntries(properties) }),
      ...(required.length > 0 && { required: required.filter((name) => name.length <= MAX_SMALL) }),
      ...((names.length > 0 || isObject(others)) && others !== false && { additionalProperties: others }),
    };
  }

  #array(part: Json, depth: number, within: readonly string[]): ArgumentSchema {
    const { minItems, maxItems } = part;
    const inTurn = Array.isArray(part['items']) ? part['items'] : listOf(part['prefixItems']);
    if (inTurn.length > 0) this.note('prefixItems');
    if (isCount(minItems) && minItems > 1) this.note('minItems');
    if (isCount(maxItems)) this.note('maxItems');
    const items = inTurn.length > 0 ? this.#oneOf(inTurn, depth, within) : this.read(part['items'], depth + 1, within);
    return {
      type: 'array',
      ...(Object.keys(items).length > 0 && { items }),
      ...(isCount(minItems) && { minItems }),
      ...(isCount(maxItems) && { maxItems }),
    };
  }

  #length({ minLength, maxLength }: Json): ArgumentSchema {
    const isLong = isCount(maxLength) && maxLength > MAX_LENGTH;
    if (isLong) this.note('maxLength');
    if (isCount(minLength) && minLength > MAX_LEAST) this.note('minLength');
    return {
      ...(isCount(minLength) && minLength > 0 && { minLength }),
      ...(isCount(maxLength) && !isLong && { maxLength }),
    };
  }

  #bounds({ minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below }: Json, type: string): ArgumentSchema {
    const step = type === 'integer' ? 1 : 0;
    const least = Math.max(numberOr(minimum, -Infinity), numberOr(above, -Infinity) + step);
    const most = Math.min(numberOr(maximum, Infinity), numberOr(below, Infinity) - step);
    if (least > -Infinity && !(least === 0 || most - least < 256)) this.note('minimum');
    if (most < Infinity && !(most - least < 256)) this.note('maximum');
    if (step === 0 && (above !== undefined || below !== undefined)) this.note('exclusiveMinimum, exclusiveMaximum');
    return { ...(least > -Infinity && { minimum: least }), ...(most < Infinity && { maximum: most }) };
  }

  #choices(part: Json, read: ArgumentSchema): ArgumentSchema {
    const choices: unknown = 'const' in part ? [part['const']] : part['enum'];
    if (!Array.isArray(choices) || choices.length === 0) return read;
    if (choices.length > MAX_CHOICES || !(textLength(choices) <= MAX_TEXTS)) {
      this.note('enum');
      return read;
    }
    const all: unknown[] = part['nullable'] === true ? [...new Set([...listOf(choices), null])] : listOf(choices);
    const type = all.every((choice) => typeof choice === 'string') ? { type: 'string' } : {};
    return { ...type, enum: all };
  }

  /** Returns the unchecked keys that the model may read, limited in size. */
  #words(part: Json): Json {
    const words: Json = {};
    const { description } = part;
    if (typeof description === 'string' && this.#texts < MAX_TEXTS) {
      if (description.length > MAX_TEXT) this.note('description');
      this.#texts += Math.min(description.length, MAX_TEXT);
      words['description'] = cutText(description, MAX_TEXT);
    }
    for (const key of ['default', 'format', 'pattern'])
      if (part[key] !== undefined && textLength(part[key]) <= MAX_SMALL) words[key] = part[key];
    return words;
  }

  /** Returns a schema for values that fit both `a` and `b`. */
  #both(a: ArgumentSchema, b: ArgumentSchema): ArgumentSchema {
    if (Object.keys(a).length === 0) return b;
    if (Object.keys(b).length === 0) return a;
    if (a.anyOf || b.anyOf) {
      const [{ anyOf: some = [], ...beside }, other] = a.anyOf ? [a, b] : [b, a];
      if (some.length * (other.anyOf?.length ?? 1) > MAX_ALTERNATIVES) return this.#any('allOf');
      this.#parts += some.length;
      return { ...beside, ...anyOf(some.map((one) => this.#both(other, one))) };
    }
    const isNarrower = a.type === 'number' && b.type === 'integer';
    if (a.type && b.type && a.type !== b.type && !isNarrower) this.note('allOf');
    const choices = a.enum && b.enum ? { enum: b.enum.filter((choice) => a.enum!.includes(choice)) } : {};
    const required = [...new Set([...(a.required ?? []), ...(b.required ?? [])])];
    const properties = a.properties && b.properties && { properties: this.#members(a.properties, b.properties) };
    return { ...a, ...b, ...choices, ...properties, ...(required.length > 0 && { required }) };
  }

  #members(a: Members, b: Members): Members {
    const inBoth = Object.keys(a).filter((name) => Object.hasOwn(b, name));
    return { ...a, ...b, ...Object.fromEntries(inBoth.map((name) => [name, this.#both(a[name], b[name])])) };
  }
}

/** Returns alternatives without duplicates; a single one is returned alone. */
function anyOf(alternatives: ArgumentSchema[]): ArgumentSchema {
  const flat = alternatives.flatMap(({ anyOf, ...one }) => anyOf ?? [one]);
  const different = [...new Map(flat.map((one) => [JSON.stringify(one), one])).values()];
  return different.length === 1 ? different[0] : { anyOf: different };
}

/** Merges alternatives, because arguments are one object. It has the members of all and requires those that all require. */
function asObject({ anyOf: alternatives, ...rest }: ArgumentSchema, note: (keyword: string) => void) {
  if (!alternatives) return rest;
  const objects = alternatives.filter(({ type }) => type === 'object' || type === undefined);
  if (objects.length === 0) return undefined;
  note('anyOf of all arguments');
  const members = new Map<string, ArgumentSchema[]>();
  for (const { properties = {} } of objects)
    for (const [name, schema] of Object.entries(properties)) members.set(name, [...(members.get(name) ?? []), schema]);
  const isOpen = objects.some(({ properties, additionalProperties }) => !properties || additionalProperties);
  return {
    ...rest,
    ...OBJECT,
    properties: Object.fromEntries([...members].map(([name, schemas]) => [name, anyOf(schemas)])),
    required: (objects[0].required ?? []).filter((name) => objects.every((one) => one.required?.includes(name))),
    ...(isOpen && { additionalProperties: true }),
  };
}

/** Returns the type that a part implies without naming it. */
function implied(part: Json): string | undefined {
  if (part['properties'] !== undefined || part['additionalProperties'] !== undefined || Array.isArray(part['required']))
    return 'object';
  return part['items'] !== undefined || part['prefixItems'] !== undefined ? 'array' : undefined;
}

/** Returns the value at a JSON pointer. */
function pointed(root: unknown, pointer: string): unknown {
  let at = root;
  for (const step of pointer.split('/').slice(1)) {
    const name = decoded(step).replaceAll('~1', '/').replaceAll('~0', '~');
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, name)) return undefined;
    at = (at as Json)[name];
  }
  return pointer === '' || pointer.startsWith('/') ? at : undefined;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
const numberOr = (value: unknown, other: number): number => (typeof value === 'number' ? value : other);
const small = (value: unknown): string => String(value).slice(0, 20);

/** Returns the length as JSON; Infinity if a value is nested too deeply to be written. */
function textLength(value: unknown): number {
  try {
    return JSON.stringify(value).length;
  } catch {
    return Infinity;
  }
}

/** Truncates the text to `most` characters and "...". */
export const cutText = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most)}...`;
