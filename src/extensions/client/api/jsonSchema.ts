/** Converts the JSON schema of a request's `response_format` to the subset from which `constrained` makes a grammar. */

import { MAX_LEAST, MAX_RANGE } from '../../constrained/index.ts';
import { type ArgumentSchema, isObject } from '../../../tasks/toolSchema.ts';
import { refuse } from './apiError.ts';

interface ReadSchema {
  schema: ArgumentSchema;
  /** Keywords of the client's schema that the grammar does not enforce. */
  unenforced: string[];
}

type Given = Record<string, unknown>;

/** Maximum number and nesting depth of the schemas in one JSON schema, after each $ref is replaced by its target. */
const MAX_NODES = 1000;
const MAX_DEPTH = 32;
/** Largest `maxLength` that is enforced. The grammar's automaton has a state per character, so larger values are ignored. */
const MAX_LENGTH = 512;

const ENFORCED = ['type', 'enum', 'const', 'anyOf', 'oneOf', 'allOf', '$ref', 'properties', 'required', 'items'];
const PARTLY = ['additionalProperties', 'minItems', 'minimum', 'maximum', 'minLength', 'maxLength'];
const ANNOTATIONS = [
  'title',
  'description',
  'default',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  'discriminator',
];
const HEADS = ['$schema', '$id', '$comment', '$defs', 'definitions'];
/** Keywords that describe a schema, and restrict no value. */
const DESCRIBING = new Set([...ANNOTATIONS, ...HEADS]);
const KNOWN = new Set([...ENFORCED, ...PARTLY, ...DESCRIBING]);
/** Keywords of which two values are joined, or of which a difference does not matter. */
const JOINED = new Set([...DESCRIBING, 'properties', 'required']);

/** Converts a JSON schema. Throws ApiError about `param` if the schema is invalid, recursive or too large. */
export function readSchema(root: unknown, param: string): ReadSchema {
  const reader = new SchemaReader(root, param);
  return { schema: reader.read(root, []), unenforced: [...reader.unenforced] };
}

class SchemaReader {
  readonly unenforced = new Set<string>();
  readonly #root: unknown;
  readonly #param: string;
  #nodes = 0;

  constructor(root: unknown, param: string) {
    this.#root = root;
    this.#param = param;
  }

  /** @param refs $ref values that were followed to reach `given`, to detect recursion */
  read(given: unknown, refs: readonly string[], depth = 0): ArgumentSchema {
    if (given === true) return {};
    if (!isObject(given)) throw this.#refuse(`has ${JSON.stringify(given)?.slice(0, 60)} where a schema is expected`);
    if (++this.#nodes > MAX_NODES || depth > MAX_DEPTH)
      throw this.#refuse(`is larger than ${MAX_NODES} schemas or deeper than ${MAX_DEPTH}`);
    for (const keyword of Object.keys(given)) if (!KNOWN.has(keyword)) this.unenforced.add(keyword);
    const next = (one: unknown) => this.read(one, refs, depth + 1);
    const { $ref: ref, allOf, type } = given;
    if (typeof ref === 'string')
      return this.read(this.#beside(given, '$ref', this.#target(ref, refs), refs), [...refs, ref], depth + 1);
    if (Array.isArray(allOf)) return next(this.#merged(given, allOf, refs));
    if ('const' in given || given['enum'] !== undefined) {
      this.#noteOthers(given, ['const', 'enum', 'type']);
      return { enum: 'const' in given ? [given['const']] : this.#list(given['enum'], 'enum') };
    }
    const keyword = ['anyOf', 'oneOf'].find((one) => given[one] !== undefined);
    if (keyword !== undefined) {
      if (keyword === 'anyOf' && given['oneOf'] !== undefined) this.unenforced.add('oneOf');
      const { oneOf: _, ...rest } = given;
      return { anyOf: this.#list(given[keyword], keyword).map((one) => next(this.#beside(rest, keyword, one, refs))) };
    }
    if (Array.isArray(type)) return { anyOf: this.#list(type, 'type').map((one) => next({ ...given, type: one })) };
    return this.#typed(given, next);
  }

  #typed(given: Given, next: (one: unknown) => ArgumentSchema): ArgumentSchema {
    const { type = 'properties' in given ? 'object' : undefined } = given;
    const number = (key: string) => (typeof given[key] === 'number' ? { [key]: given[key] } : {});
    switch (type) {
      case undefined:
        this.#noteOthers(given);
        return {};
      case 'boolean':
      case 'null':
        return { type };
      case 'string':
        this.#noteLengths({ ...number('minLength'), ...number('maxLength') });
        return { type, ...number('minLength'), ...(Number(given['maxLength']) <= MAX_LENGTH && number('maxLength')) };
      case 'integer':
      case 'number':
        this.#noteBounds({ ...number('minimum'), ...number('maximum') }, type);
        return { type, ...number('minimum'), ...number('maximum') };
      case 'array':
        if (Number(given['minItems']) > 1) this.unenforced.add('minItems');
        return { type, ...number('minItems'), ...('items' in given && { items: next(given['items']) }) };
      case 'object':
        return this.#object(given, next);
      default:
        throw this.#refuse(`has the type ${JSON.stringify(type)?.slice(0, 60)}`);
    }
  }

  /** Records keywords that restrict a value as not enforced, except the `enforced` ones. */
  #noteOthers(given: Given, enforced: readonly string[] = []): void {
    for (const keyword of Object.keys(given))
      if (!DESCRIBING.has(keyword) && !enforced.includes(keyword)) this.unenforced.add(keyword);
  }

  /** Records `minLength` and `maxLength` as not enforced if the grammar does not enforce them, or cannot enforce both. */
  #noteLengths({ minLength = 0, maxLength = Infinity }: Given): void {
    if (Number(minLength) > MAX_LEAST) this.unenforced.add('minLength');
    if (Number(minLength) > Number(maxLength)) this.unenforced.add('maxLength');
    if (Number(maxLength) > MAX_LENGTH && maxLength !== Infinity) this.unenforced.add('maxLength');
  }

  /**
   * Records `minimum` and `maximum` as not enforced. The grammar lists the values of a small range of integers; otherwise it can only
   * exclude negative numbers.
   */
  #noteBounds({ minimum, maximum }: Given, type: string): void {
    const range = Math.floor(Number(maximum)) - Math.ceil(Number(minimum));
    if (type === 'integer' && range >= 0 && range < MAX_RANGE) return;
    if (minimum !== undefined && minimum !== 0) this.unenforced.add('minimum');
    if (maximum !== undefined) this.unenforced.add('maximum');
  }

  #object(given: Given, next: (one: unknown) => ArgumentSchema): ArgumentSchema {
    const { properties, required = [], additionalProperties: more } = given;
    const others = more === undefined ? {} : { additionalProperties: typeof more === 'boolean' ? more : next(more) };
    if (properties === undefined) {
      if (Array.isArray(required) && required.length > 0) this.unenforced.add('required');
      return { type: 'object', ...others };
    }
    if (!isObject(properties)) throw this.#refuse('has properties that are not an object');
    const isNamed = (name: unknown) => typeof name === 'string' && Object.hasOwn(properties, name);
    if (!Array.isArray(required) || !required.every(isNamed))
      throw this.#refuse('requires a property that is not among its properties');
    const schemas = Object.entries(properties).map(([name, one]) => [name, next(one)] as const);
    return { type: 'object', properties: Object.fromEntries(schemas), required: required as string[], ...others };
  }

  /** Returns `one`, which the schema has under `keyword`, merged with the keywords beside it that restrict the value, if there are any. */
  #beside(given: Given, keyword: string, one: unknown, refs: readonly string[]): unknown {
    const { [keyword]: _, ...rest } = given;
    const restricts = Object.keys(rest).some((other) => !DESCRIBING.has(other));
    return restricts && isObject(one) ? this.#merged(rest, [one], refs) : one;
  }

  /**
   * Merges the schema and the members of its `allOf` into one schema. If two of them have different values of a keyword, records the
   * keyword as not enforced, because the last value is kept.
   */
  #merged({ allOf: _, ...rest }: Given, all: unknown[], refs: readonly string[]): Given {
    const parts = all.map((one) => {
      if (one === true) return {};
      if (!isObject(one)) throw this.#refuse('has an allOf without schemas');
      return typeof one['$ref'] === 'string' ? this.#target(one['$ref'], refs) : one;
    });
    return parts.filter(isObject).reduce<Given>((merged, part) => {
      for (const [key, value] of Object.entries(part))
        if (Object.hasOwn(merged, key) && !JOINED.has(key) && JSON.stringify(value) !== JSON.stringify(merged[key]))
          this.unenforced.add(key);
      return {
        ...merged,
        ...part,
        ...(isObject(merged['properties']) && isObject(part['properties'])
          ? { properties: inBoth(merged['properties'], part['properties']) }
          : {}),
        ...('required' in merged && 'required' in part
          ? { required: [merged['required'], part['required']].flat() }
          : {}),
      };
    }, rest);
  }

  #target(ref: string, refs: readonly string[]): unknown {
    if (refs.includes(ref)) throw this.#refuse(`refers to itself by ${JSON.stringify(ref.slice(0, 60))}`);
    const [head, ...path] = ref.split('/').map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    const found = path.reduce<unknown>(
      (at, part) => (isObject(at) && Object.hasOwn(at, part) ? at[part] : undefined),
      head === '#' ? this.#root : undefined,
    );
    if (found === undefined)
      throw this.#refuse(`refers to ${JSON.stringify(ref.slice(0, 60))}, which it does not have`);
    return found;
  }

  #list(given: unknown, keyword: string): unknown[] {
    if (Array.isArray(given) && given.length > 0) return given;
    throw this.#refuse(`has an ${keyword} that is not a list of at least one`);
  }

  #refuse(what: string) {
    return refuse(this.#param, `The schema ${what}. Give a JSON schema with local, not recursive references.`);
  }
}

/** Returns the properties of both. One that both have must fit both schemas. */
const inBoth = (a: Given, b: Given): Given => ({
  ...a,
  ...Object.fromEntries(
    Object.entries(b).map(([name, schema]) => [name, Object.hasOwn(a, name) ? { allOf: [a[name], schema] } : schema]),
  ),
});
