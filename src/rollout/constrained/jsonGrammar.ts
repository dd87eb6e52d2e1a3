/**
 * JSON that fits a schema, as a language over bytes. Members come in the order of the schema, those that are not required may
 * be left out, and a space or none goes after ":" and ",".
 *
 * Of the schema's bounds, `maxLength`, `enum` and the range of an integer of at most MAX_RANGE values hold; other numbers
 * keep their sign. The tool's own check still reads the call and says what is wrong with it.
 */

import type { ArgumentSchema, ToolSchema } from '../../tasks/toolSchema.ts';
import { bytes, literal, many, type Nfa, oneOf, optional, type Pattern, sequence, upTo } from './byteAutomaton.ts';

/** Whole numbers that are written out one by one. */
const MAX_RANGE = 256;
/** Digits of a number before and after the point, so that no value is beyond what JSON readers agree on. */
const MAX_DIGITS = 15;

export const space = optional(literal(' '));
const digit = bytes([0x30, 0x39]);

/** "<" is escaped, so that no tag can come out of a name or a choice. */
export const json = (value: unknown): string => JSON.stringify(value).replaceAll('<', '\\u003c');

export function value(schema: ArgumentSchema): Pattern {
  if (schema.enum) return oneOf(...schema.enum.map((choice) => literal(json(choice))));
  if (schema.type === 'string') return string(schema.maxLength);
  if (schema.type === 'integer') return integer(schema);
  if (schema.type === 'number') return sequence(whole(schema), optional(fraction), optional(exponent));
  if (schema.type === 'boolean') return oneOf(literal('true'), literal('false'));
  if (schema.type === 'null') return literal('null');
  if (schema.type === 'array') return array(schema.items ? value(schema.items) : scalar());
  if (schema.type === 'object')
    return object({
      type: 'object',
      properties: schema.properties ?? {},
      ...(schema.required && { required: schema.required }),
    });
  return scalar();
}

/** A value whose type the schema does not give. */
const scalar = (): Pattern => oneOf(...['string', 'number', 'boolean', 'null'].map((type) => value({ type })));

const array = (item: Pattern): Pattern =>
  sequence(literal('['), optional(sequence(item, many(sequence(literal(','), space, item)))), literal(']'));

/** Two ways run side by side: no member yet, and some, after which a comma comes. */
export function object({ properties, required = [] }: ToolSchema): Pattern {
  return (nfa, from) => {
    let none: number | undefined = literal('{')(nfa, from);
    let some: number | undefined;
    for (const [key, schema] of Object.entries(properties)) {
      const start = nfa.node();
      if (none !== undefined) nfa.free[none].push(start);
      if (some !== undefined) nfa.free[sequence(literal(','), space)(nfa, some)].push(start);
      const end = sequence(literal(`${json(key)}:`), space, value(schema))(nfa, start);
      const next = joined(nfa, end);
      if (required.includes(key)) none = undefined;
      else if (some !== undefined) nfa.free[some].push(next);
      some = next;
    }
    const close = nfa.node();
    for (const at of [none, some]) if (at !== undefined) nfa.free[literal('}')(nfa, at)].push(close);
    return close;
  };
}

/** A fresh node after `from`: others may lead there, too. */
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

function whole({ minimum = -Infinity, maximum = Infinity }: ArgumentSchema): Pattern {
  const magnitude = oneOf(literal('0'), sequence(bytes([0x31, 0x39]), upTo(MAX_DIGITS - 1, digit)));
  if (minimum >= 0) return magnitude;
  return maximum < 0 ? sequence(literal('-'), magnitude) : sequence(optional(literal('-')), magnitude);
}

const fraction = sequence(literal('.'), digit, upTo(MAX_DIGITS - 1, digit));
const exponent = sequence(
  bytes([0x45, 0x45], [0x65, 0x65]),
  optional(bytes([0x2b, 0x2b], [0x2d, 0x2d])),
  digit,
  upTo(1, digit),
);

/** JSON's strings in valid UTF-8, in which neither tag of a call can occur: "<" is not followed by "t" or "/". */
function string(maxLength?: number): Pattern {
  const character = (ascii: Ranges, beyond: boolean) => oneOf(bytes(...ascii), escaped, utf8(beyond));
  return sequence(literal('"'), characters(character, maxLength), literal('"'));
}

/** The same without quotes and escapes, for formats that write texts as they are; line breaks and tabs are allowed. */
export function rawText(maxLength?: number): Pattern {
  const breaks: Ranges = [
    [0x09, 0x0a],
    [0x0d, 0x0d],
    [0x22, 0x22],
    [0x5c, 0x5c],
  ];
  return characters((ascii, beyond) => oneOf(bytes(...ascii, ...breaks), utf8(beyond)), maxLength);
}

type Ranges = [number, number][];

function characters(character: (ascii: Ranges, beyond: boolean) => Pattern, maxLength?: number): Pattern {
  // Characters beyond U+FFFF count twice where length is limited, "<" would need to look ahead: neither comes there.
  if (maxLength !== undefined) return upTo(maxLength, character(ASCII, false));
  const opening = sequence(literal('<'), many(literal('<')));
  const harmless = sequence(opening, character(NO_TAG, true));
  return sequence(many(oneOf(character(ASCII, true), harmless)), optional(opening));
}

/** All but control characters, `"`, `<` and `\`. */
const ASCII: Ranges = [
  [0x20, 0x21],
  [0x23, 0x3b],
  [0x3d, 0x5b],
  [0x5d, 0x7f],
];
/** Of these all but "/" and "t". */
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

/** A character of several bytes as RFC 3629 allows them; those beyond U+FFFF only where asked for. */
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
