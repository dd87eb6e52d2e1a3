/** Grammar of valid tool calls, made from the schemas of tools, in the formats that tools/parser.ts parses. */

import { InputError } from '../../errors.ts';
import type { ArgumentSchema } from '../../tasks/toolSchema.ts';
import type { CallableTool, CallFormat } from '../../rollout/types.ts';
import { bytes, literal, many, oneOf, optional, type Pattern, sequence } from './byteAutomaton.ts';
import { json, object, rawText, space, value } from './jsonGrammar.ts';

export const CALL_OPENS = '<tool_call>';
const CALL_CLOSES = '</tool_call>';

/**
 * Returns the grammar of the text after the opening tag of a call, up to and including the closing tag. In Llama 3's format, which has no
 * tags, returns the grammar of a complete turn.
 */
export function toolCallGrammar(tools: readonly CallableTool[], format: CallFormat = 'hermes'): Pattern {
  if (format === 'llama3_json') return llamaTurn(jsonCall(tools, 'parameters'));
  const call = format === 'hermes' ? jsonCall(tools, 'arguments') : oneOf(...tools.map(CALLS_WITHOUT_QUOTES[format]));
  return sequence(lineBreak, call, lineBreak, literal(CALL_CLOSES));
}

/** Returns the grammar of a turn that consists only of calls: exactly one, or at least one. */
export function callsGrammar(tools: readonly CallableTool[], format: CallFormat, isSingle: boolean): Pattern {
  const isTagged = format !== 'llama3_json';
  const call = isTagged ? sequence(literal(CALL_OPENS), toolCallGrammar(tools, format)) : jsonCall(tools, 'parameters');
  const between = isTagged ? lineBreak : sequence(literal(';'), space);
  return isSingle ? call : sequence(call, many(sequence(between, call)));
}

const lineBreak = optional(literal('\n'));

function jsonCall(tools: readonly CallableTool[], argumentsKey: string): Pattern {
  const calls = tools.map(({ name, parameters }) =>
    sequence(literal(`${json(name)},`), space, literal(`"${argumentsKey}":`), space, object(parameters)),
  );
  return sequence(literal('{"name":'), space, oneOf(...calls), literal('}'));
}

/** Grammars of a call in the formats that write texts unquoted and all other values as JSON. */
const CALLS_WITHOUT_QUOTES = { qwen3_coder: xmlCall, glm: glmCall };

function xmlCall({ name, parameters: { properties, required = [] } }: CallableTool): Pattern {
  const parts = Object.entries(properties).map(([key, schema]) => {
    const part = sequence(
      literal(`<parameter=${xmlName(name, key)}>`),
      lineBreak,
      xmlValue('qwen3_coder', name, key, schema),
      lineBreak,
      literal('</parameter>'),
      lineBreak,
    );
    return required.includes(key) ? part : optional(part);
  });
  return sequence(literal(`<function=${xmlName(name, name)}>`), lineBreak, ...parts, literal('</function>'));
}

function glmCall({ name, parameters: { properties, required = [] } }: CallableTool): Pattern {
  const parts = Object.entries(properties).map(([key, schema]) => {
    const part = sequence(
      literal(`<arg_key>${glmName(name, key)}</arg_key>`),
      lineBreak,
      literal('<arg_value>'),
      xmlValue('glm', name, key, schema),
      literal('</arg_value>'),
      lineBreak,
    );
    return required.includes(key) ? part : optional(part);
  });
  return sequence(literal(glmName(name, name)), lineBreak, ...parts);
}

function glmName(tool: string, name: string): string {
  if (name === name.trim() && !name.includes('<')) return name;
  throw new InputError(
    `Tool "${tool}": the name "${name}" has "<" or a space at an end, which format glm cannot write. Rename it.`,
  );
}

function xmlName(tool: string, name: string): string {
  if (!/[>\s]/.test(name)) return name;
  throw new InputError(
    `Tool "${tool}": the name "${name}" has ">" or a space, which format qwen3_coder cannot write. Rename it.`,
  );
}

function xmlValue(format: CallFormat, tool: string, key: string, schema: ArgumentSchema): Pattern {
  if (schema.type !== 'string') return value(schema);
  if (!schema.enum) return rawText(schema);
  const choices = schema.enum.map(String).filter((choice) => !/<[t/]|^\n|\n$/.test(choice));
  if (choices.length > 0) return oneOf(...choices.map(literal));
  throw new InputError(`Tool "${tool}": no choice of "${key}" can be written in format ${format}. Change its enum.`);
}

/**
 * Returns the grammar of a turn in Llama 3's format. A turn that starts with "{" consists of calls separated by ";". Any other turn is free
 * text.
 */
function llamaTurn(call: Pattern): Pattern {
  const blank = bytes([0x09, 0x0d], [0x20, 0x20]);
  const free = sequence(bytes([0x00, 0x08], [0x0e, 0x1f], [0x21, 0x7a], [0x7c, 0xff]), many(bytes([0x00, 0xff])));
  const calls = sequence(call, many(sequence(optional(literal(' ')), literal(';'), space, call)));
  return sequence(many(blank), optional(oneOf(free, calls)));
}
