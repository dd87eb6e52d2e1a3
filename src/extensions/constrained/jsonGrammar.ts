/**
 * Grammar of JSON that fits a schema, as a language over bytes. Members are in the order of the schema, optional members can be omitted,
 * and at most one space follows ":" and ",".
 *
 * The grammar enforces these limits of the schema: `maxLength`, `minLength` up to MAX_LEAST, a `minItems` of 1, `enum`, and the range of an
 * integer with at most MAX_RANGE values. For the range of other numbers it enforces only the sign. Values without a type are nested at most
 * FREE_LEVELS deep. The check of the parsed call reports all other errors.
 */

import type { ArgumentSchema, ToolSchema } from '../../tasks/toolSchema.ts';
import { bytes, literal, many, type Nfa, oneOf, optional, type Pattern, sequence, upTo } from './byteAutomaton.ts';

/** Largest range of integers whose values are all listed in the grammar. */
export const MAX_RANGE = 256;
/** Largest `minLength` that the grammar enforces, in characters. */
export const MAX_LEAST = 64;
const FREE_LEVELS = 2;
/** Maximum number of digits before and after the decimal point, so that all JSON parsers read the same value. */
const MAX_DIGITS = 15;

export const space = optional(literal(' '));
const digit = bytes([0x30, 0x39]);

/** Returns a value as JSON. "<" is escaped, so that a name or an allowed value cannot contain the tag of a call. */
export const json = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

/** Returns the pattern of a JSON value that fits the schema. */
export function value(schema: ArgumentSchema): Pattern {
  if (schema.enum) return oneOf(...schema.enum.map((choice) => literal(json(choice))));
  if (schema.anyOf) return oneOf(...schema.anyOf.map(value));
  if (schema.type === 'string') return string(schema);
  if (schema.type === 'integer') return integer(schema);
  if (schema.type === 'number') return sequence(whole(schema), optional(fraction), optional(exponent));
  if (schema.type === 'boolean') return oneOf(literal('true'), literal('false'));
  if (schema.type === 'null') return literal('null');
  if (schema.type === 'array') return array(schema.items ? value(schema.items) : anything(1), schema.minItems);
  if (schema.type !== 'object') return anything(FREE_LEVELS);
  const { properties } = schema;
  const additionalProperties = schema.additionalProperties ?? properties === undefined;
  return object({ ...schema, type: 'object', properties: properties ?? {}, additionalProperties });
}

/** Returns the pattern of a value whose type the schema does not set. */
function anything(levels: number): Pattern {
  const scalars = ['string', 'number', 'boolean', 'null'].map((type) => value({ type }));
  if (levels === 0) return oneOf(...scalars);
  return oneOf(...scalars, array(anything(levels - 1)), objectOf([], anything(levels - 1)));
}

const array =
  (item: Pattern, minItems = 0): Pattern =>
  (nfa, from) => {
    const open = literal('[')(nfa, from);
    const start = joined(nfa, open);
    const end = joined(nfa, item(nfa, start));
    nfa.free[comma(nfa, end)].push(start);
    const close = literal(']')(nfa, end);
    if (minItems < 1) nfa.free[literal(']')(nfa, open)].push(close);
    return close;
  };

const comma = sequence(literal(','), space);

/** Returns the pattern of a JSON object that fits the schema. */
export const object = ({ properties, required = [], additionalProperties }: ToolSchema): Pattern =>
  objectOf(
    Object.entries(properties).map(([key, schema]) => ({
      member: sequence(literal(`${json(key)}:`), space, value(schema)),
      isRequired: required.includes(key),
    })),
    additionalProperties === true ? anything(1) : additionalProperties ? value(additionalProperties) : undefined,
  );

/**
 * Returns the pattern of an object. Follows two alternatives in parallel: no member so far, and at least one member, after which the next
 * one needs a comma.
 * @param more pattern of the values of additional members
 */
function objectOf(members: { member: Pattern; isRequired: boolean }[], more?: Pattern): Pattern {
  const others = more && { member: sequence(string({}), literal(':'), space, more), isRequired: false };
  return (nfa, from) => {
    let none: number | undefined = literal('{')(nfa, from);
    let some: number | undefined;
    for (const one of others ? [...members, others] : members) {
      const start = nfa.node();
      if (none !== undefined) nfa.free[none].push(start);
      if (some !== undefined) nfa.free[comma(nfa, some)].push(start);
      const next = joined(nfa, one.member(nfa, start));
      if (one === others) nfa.free[comma(nfa, next)].push(start);
      if (one.isRequired) none = undefined;
      else if (some !== undefined) nfa.free[some].push(next);
      some = next;
    }
    const close = nfa.node();
    for (const at of [none, some]) if (at !== undefined) nfa.free[literal('}')(nfa, at)].push(close);
    return close;
  };
}

/** Returns a new node that is reached from `from` without a byte. Other nodes can lead to it too. */
function joined(nfa: Nfa, from: number): number {
  const to = nfa.node();
  nfa.free[from].push(to);
  return to;
}

function integer(schema: ArgumentSchema): Pattern {
  const [low, high] = [Math.ceil(schema.minimum ?? -Infinity), Math.floor(schema.maximum ?? Infinity)];
  if (!(high - low < MAX_RANGE) || high < low) return whole(schema);
  return oneOf(...Array.from({ length: high - low + 1 }, (_, i) => literal(`${low + i}`)));
}

function whole({ minimum, maximum }: ArgumentSchema): Pattern {
  const magnitude = oneOf(literal('0'), sequence(bytes([0x31, 0x39]), upTo(MAX_DIGITS - 1, digit)));
  if ((minimum ?? -Infinity) >= 0) return magnitude;
  return (maximum ?? Infinity) < 0 ? sequence(literal('-'), magnitude) : sequence(optional(literal('-')), magnitude);
}

const fraction = sequence(literal('.'), digit, upTo(MAX_DIGITS - 1, digit));
const exponent = sequence(
  bytes([0x45, 0x45], [0x65, 0x65]),
  optional(bytes([0x2b, 0x2b], [0x2d, 0x2d])),
  digit,
  upTo(1, digit),
);

/** Returns the pattern of a JSON string in valid UTF-8. It cannot contain the tags of a call, because "<" is not followed by "t" or "/". */
function string(length: Length): Pattern {
  const character = (ascii: Ranges, beyond: boolean) => oneOf(bytes(...ascii), escaped, utf8(beyond));
  return sequence(literal('"'), characters(character, length), literal('"'));
}

/**
 * Returns the pattern of a text without quotes and escapes, for call formats that write texts unquoted. Line breaks and tabs are allowed.
 */
export function rawText(length: Length): Pattern {
  const breaks: Ranges = [
    [0x09, 0x0a],
    [0x0d, 0x0d],
    [0x22, 0x22],
    [0x5c, 0x5c],
  ];
  return characters((ascii, beyond) => oneOf(bytes(...ascii, ...breaks), utf8(beyond)), length);
}

type Ranges = [number, number][];
type Length = Pick<ArgumentSchema, 'minLength' | 'maxLength'>;

function characters(
  character: (ascii: Ranges, beyond: boolean) => Pattern,
  { minLength = 0, maxLength }: Length,
): Pattern {
  const least = Math.min(minLength, maxLength ?? MAX_LEAST, MAX_LEAST);
  const leastOf = (pattern: Pattern) => sequence(...Array.from({ length: least }, () => pattern));
  // A string with a length limit cannot contain characters beyond U+FFFF, which count twice, nor "<", which would be allowed only together
  // with a harmless character after it.
  if (typeof maxLength === 'number') {
    const plain = character(ASCII, false);
    return sequence(leastOf(plain), upTo(maxLength - least, plain));
  }
  const opening = sequence(literal('<'), many(literal('<')));
  const harmless = sequence(opening, character(NO_TAG, true));
  const one = oneOf(character(ASCII, true), harmless);
  return sequence(leastOf(one), many(one), optional(opening));
}

/** ASCII characters except control characters, `"`, `<` and `\`. */
const ASCII: Ranges = [
  [0x20, 0x21],
  [0x23, 0x3b],
  [0x3d, 0x5b],
  [0x5d, 0x7f],
];
/** Same as ASCII, but without "/" and "t", with which a "<" could start the tag of a call. */
const NO_TAG: Ranges = [
  [0x20, 0x21],
  [0x23, 0x2e],
  [0x30, 0x3b],
  [0x3d, 0x5b],
  [0x5d, 0x73],
  [0x75, 0x7f],
];

const hex = bytes([0x30, 0x39], [0x41, 0x46], [0x61, 0x66]);
const escaped = sequence(
  literal('\\'),
  oneOf(
    bytes(...[...'"\\/bfnrt'].map((c): [number, number] => [c.charCodeAt(0), c.charCodeAt(0)])),
    sequence(literal('u'), hex, hex, hex, hex),
  ),
);

/** Returns the pattern of a multi-byte character as RFC 3629 allows it. Characters beyond U+FFFF match only if `beyond` is true. */
function utf8(beyond: boolean): Pattern {
  const more = bytes([0x80, 0xbf]);
  const within = [
    sequence(bytes([0xc2, 0xdf]), more),
    sequence(bytes([0xe0, 0xe0]), bytes([0xa0, 0xbf]), more),
    sequence(bytes([0xe1, 0xec], [0xee, 0xef]), more, more),
    sequence(bytes([0xed, 0xed]), bytes([0x80, 0x9f]), more),
  ];
  const after = [
    sequence(bytes([0xf0, 0xf0]), bytes([0x90, 0xbf]), more, more),
    sequence(bytes([0xf1, 0xf3]), more, more, more),
    sequence(bytes([0xf4, 0xf4]), bytes([0x80, 0x8f]), more, more),
  ];
  return oneOf(...within, ...(beyond ? after : []));
}
