/** Validates the messages and tools of a request, and normalises them so that messages of two requests can be compared. */

import * as v from 'valibot';
import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';
import { parseJson } from '../../../rollout/tools/call.ts';
import { type ArgumentSchema, isObject, schemaProblem, type ToolSchema } from '../../../tasks/toolSchema.ts';
import type { Tool } from '../../../tasks/tool.ts';

export interface CalledTool {
  id: string;
  name: string;
  /** Arguments of the call, as JSON text. */
  arguments: string;
}

/** A message after normalisation: content is one string, the role `developer` is `system`, null fields are removed. */
export interface ChatMessage {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
  name?: string;
  toolCalls?: CalledTool[];
  toolCallId?: string;
}

/** Maximum number of messages in a request. A conversation that fits into a context has far fewer. */
const MAX_MESSAGES = 2048;
const MAX_TOOLS = 128;

const PART = 'only { type: "text", text }, because the model reads text alone';
const parts = v.pipe(
  v.array(
    v.variant(
      'type',
      [
        v.object({ type: v.literal('text'), text: v.string(PART) }),
        v.object({ type: v.literal('refusal'), refusal: v.string(PART) }), // in a reply of another model
      ],
      PART,
    ),
  ),
  v.transform((all) => all.map((one) => (one.type === 'text' ? one.text : one.refusal)).join('')),
);
const plainText = v.string('a text, or a list of text parts');
const content = v.lazy((given): v.GenericSchema<unknown, string> => (Array.isArray(given) ? parts : plainText));

const CALL = '{ id, type: "function", function: { name, arguments } } with texts in all';
const called = v.object({ name: v.string(CALL), arguments: v.string(CALL) }, CALL);
const call = v.pipe(
  v.object({ id: v.string(CALL), type: v.nullish(v.literal('function', CALL)), function: called }, CALL),
  v.transform(({ id, function: { name, arguments: args } }): CalledTool => ({ id, name, arguments: args })),
);

const MESSAGE = '{ role, content } with the role system, developer, user, assistant or tool';
const OUTPUT = '{ role: "tool", content, tool_call_id } with the id of the call that it answers';
const nothing = (why: string) => v.nullish(v.custom<null>(() => false, `nothing, because ${why}`));
const common = {
  name: v.nullish(v.string('a text, or nothing')),
  function_call: nothing('tools are called by tool_calls'),
  audio: nothing('the model reads text alone'),
};
const others = { ...common, tool_calls: nothing('only an assistant calls tools'), content };
const toolCalls = v.nullish(v.array(call, 'a list'), []);
const outputOf = v.pipe(v.string(OUTPUT), v.minLength(1, OUTPUT));
const said = v.object({ role: v.picklist(['system', 'developer', 'user'], MESSAGE), ...others }, MESSAGE);
const reply = v.object({
  role: v.literal('assistant'),
  ...common,
  tool_calls: toolCalls,
  content: v.nullish(content, ''),
});
const output = v.object({ role: v.literal('tool'), ...others, tool_call_id: outputOf }, OUTPUT);
const message = v.pipe(
  v.lazy((given): typeof said | typeof reply | typeof output => {
    const role = isObject(given) && given['role'];
    return role === 'assistant' ? reply : role === 'tool' ? output : said;
  }),
  v.transform((given): ChatMessage => {
    const { role, content: joined, name } = given;
    return {
      role: role === 'developer' ? 'system' : role,
      content: joined,
      ...(typeof name === 'string' && { name }),
      ...(given.role === 'assistant' && given.tool_calls.length > 0 && { toolCalls: given.tool_calls }),
      ...(given.role === 'tool' && { toolCallId: given.tool_call_id }),
    };
  }),
);

const MESSAGES = 'a list of at least one { role, content }';
const LAST = "a list that ends with a user's or a tool's message, not an assistant's";
/** Schema of a request's messages. Normalises each message. */
export const messagesSchema = v.pipe(
  v.array(message, MESSAGES),
  v.minLength(1, MESSAGES),
  v.maxLength(MAX_MESSAGES, `at most ${MAX_MESSAGES} messages`),
  v.check((all) => all.at(-1)!.role !== 'assistant', LAST),
);

const TOOL = '{ type: "function", function: { name, description?, parameters? } }';
const NAME = 'a name of 1 to 64 letters, digits, ., _ and -';
const SCHEMA = 'a JSON schema of type object, or nothing for a tool without arguments';
const PROPERTIES = 'a schema by the name of each argument';
const REQUIRED = 'a list of names that are among the properties';

/** Schema of a tool's parameters. Adds missing `type`, `properties` and `required`. A property without a valid type accepts any value. */
const parameters = v.pipe(
  v.custom<Record<string, unknown>>(
    (given) => isObject(given) && [undefined, 'object'].includes(given['type'] as string),
    SCHEMA,
  ),
  v.transform(({ type: _, properties = {}, required = [], ...rest }) => ({
    ...rest,
    type: 'object' as const,
    properties,
    required,
  })),
  v.forward(
    v.check(({ properties }) => isObject(properties) && Object.values(properties).every(isObject), PROPERTIES),
    ['properties'],
  ),
  v.forward(
    v.check(({ required, properties }) => areKeys(required, properties as object), REQUIRED),
    ['required'],
  ),
  v.check(
    (given) => schemaProblem(given, '') === undefined,
    ({ input }) => `a JSON schema, but in it ${schemaProblem(input, 'parameters')}`,
  ),
  v.transform((given) => {
    const schema = given as Required<ToolSchema>;
    const typed = Object.entries(schema.properties).map(([key, property]) => [key, typedSchema(property)] as const);
    return { ...schema, properties: Object.fromEntries(typed) };
  }),
);

/**
 * Converts a list of types to `anyOf`, because the parser of arguments knows no lists of types. With ["string", "null"], "12" stays a
 * string.
 */
function typedSchema({ type, ...rest }: ArgumentSchema): ArgumentSchema {
  if (typeof type === 'string') return { type, ...rest };
  const types: unknown = type;
  if (!Array.isArray(types) || !types.every((one) => typeof one === 'string')) return { ...rest, type: 'any' };
  const { description, ...checks } = rest;
  return { ...(description !== undefined && { description }), anyOf: types.map((one) => ({ ...checks, type: one })) };
}

const areKeys = (given: unknown, of: object): boolean =>
  Array.isArray(given) && given.every((key) => typeof key === 'string' && Object.hasOwn(of, key));

const described = v.object(
  {
    name: v.pipe(v.string(NAME), v.regex(/^[\w.-]{1,64}$/, NAME)),
    description: v.nullish(v.string('a text'), ''),
    parameters: v.optional(parameters, {}),
  },
  TOOL,
);
const tool = v.pipe(
  v.object({ type: v.literal('function', TOOL), function: described }, TOOL),
  v.transform(({ function: given }): Tool => ({ ...given, execute: runsElsewhere })),
);
const runsElsewhere = () => Promise.reject(new Error('The caller runs the tools.'));

const TOOLS = `a list of at most ${MAX_TOOLS}, no two of one name`;
/** Schema of a request's tools. */
export const toolsSchema = v.pipe(
  v.array(tool, TOOLS),
  v.maxLength(MAX_TOOLS, TOOLS),
  v.check((all) => new Set(all.map(({ name }) => name)).size === all.length, TOOLS),
);

/** True if two messages are equal. Arguments of tool calls are compared as parsed JSON, because clients can serialise them differently. */
export const isSame = (a: ChatMessage, b: ChatMessage): boolean =>
  a.role === b.role && a.content === b.content && restOf(a) === restOf(b);

const restOf = ({ name, toolCallId, toolCalls = [] }: ChatMessage): string =>
  JSON.stringify([name, toolCallId, toolCalls.map((call) => [call.id, call.name, plain(call.arguments)])]);

/** Returns JSON text without white space. The order of keys is unchanged. */
const plain = (text: string): string => JSON.stringify(parseJson(text)) ?? text;

/** Returns the messages before the first reply. All episodes of a group have the same ones. */
export function firstMessages(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const end = messages.findIndex(({ role }) => role === 'assistant');
  return end < 0 ? messages : messages.slice(0, end);
}

/**
 * Converts a message to the form that chat templates expect. Arguments of a tool call are parsed into an object, unless they contain the
 * name of a control token: only in a string can the encoder keep such a name as ordinary text.
 */
export function templateMessage(
  { role, content, name, toolCalls, toolCallId }: ChatMessage,
  tokenizer: Pick<ChatTokenizer, 'namesControl'>,
) {
  const argumentsOf = (text: string) => (tokenizer.namesControl(text) ? text : (parseJson(text) ?? text));
  return {
    role,
    content,
    ...(name !== undefined && { name }),
    ...(toolCallId !== undefined && { tool_call_id: toolCallId }),
    ...(toolCalls && {
      tool_calls: toolCalls.map((call) => ({
        id: call.id,
        type: 'function',
        function: { name: call.name, arguments: argumentsOf(call.arguments) },
      })),
    }),
  };
}
