/** The messages and tools of a request: checked, in one form, so that two of them can be compared. */

import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';
import { type ArgumentSchema, isObject, type ToolSchema } from '../../../tasks/toolSchema.ts';
import type { Tool } from '../../../tasks/tool.ts';
import { parseJson } from '../../../rollout/tools/call.ts';
import { refuse, shown } from './apiError.ts';

export interface CalledTool {
  id: string;
  name: string;
  /** JSON text. */
  arguments: string;
}

/** A message in one form: content joined, `developer` as `system`, absent and null alike. */
export interface ChatMessage {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
  name?: string;
  toolCalls?: CalledTool[];
  toolCallId?: string;
}

const ROLES = { system: 'system', developer: 'system', user: 'user', assistant: 'assistant', tool: 'tool' } as const;
/** Limit of one request. A conversation that fits a context has far fewer messages. */
const MAX_MESSAGES = 2048;
const MAX_TOOLS = 128;

/** Throws ApiError that names the first message that is none. */
export function readMessages(given: unknown): ChatMessage[] {
  if (!Array.isArray(given) || given.length === 0)
    throw refuse('messages', `messages is ${shown(given)}; give a list of at least one { role, content }.`);
  if (given.length > MAX_MESSAGES)
    throw refuse('messages', `messages has ${given.length} entries; at most ${MAX_MESSAGES} are read.`);
  const messages = given.map((message: unknown, i) => readMessage(message, `messages[${i}]`));
  if (messages.at(-1)!.role === 'assistant')
    throw refuse(
      'messages',
      "The last message is an assistant's, which the model would have to go on with; end with a user's or a tool's.",
    );
  return messages;
}

function readMessage(message: unknown, at: string): ChatMessage {
  if (!isObject(message)) throw refuse(at, `${at} is ${shown(message)}; give { role, content }.`);
  const { role: given, content, name, tool_calls: calls, tool_call_id: id } = message;
  const role =
    typeof given === 'string' && Object.hasOwn(ROLES, given) ? ROLES[given as keyof typeof ROLES] : undefined;
  if (!role) throw refuse(`${at}.role`, `${at}.role is ${shown(given)}; allowed: ${Object.keys(ROLES).join(', ')}.`);
  const legacy = ['function_call', 'audio'].find((key) => message[key] !== undefined && message[key] !== null);
  if (legacy) throw refuse(`${at}.${legacy}`, `${at}.${legacy} is not served; tools are called by tool_calls.`);
  if (calls !== undefined && calls !== null && role !== 'assistant')
    throw refuse(`${at}.tool_calls`, `${at} has tool_calls, but its role is ${role}; only an assistant calls tools.`);
  if (role === 'tool' && (typeof id !== 'string' || id === ''))
    throw refuse(`${at}.tool_call_id`, `${at}.tool_call_id is ${shown(id)}; give the id of the call that it answers.`);
  if (name !== undefined && name !== null && typeof name !== 'string')
    throw refuse(`${at}.name`, `${at}.name is ${shown(name)}; give a text, or leave it out.`);
  const toolCalls = readCalls(calls, `${at}.tool_calls`);
  return {
    role,
    content: readContent(content, `${at}.content`, role === 'assistant'),
    ...(typeof name === 'string' && { name }),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(role === 'tool' && { toolCallId: id as string }),
  };
}

function readContent(content: unknown, at: string, mayLack: boolean): string {
  if (typeof content === 'string') return content;
  if (mayLack && (content === undefined || content === null)) return '';
  if (!Array.isArray(content)) throw refuse(at, `${at} is ${shown(content)}; give a text, or a list of text parts.`);
  return content
    .map((part: unknown, i) => {
      const { type, text } = isObject(part) ? part : {};
      if (type === 'text' && typeof text === 'string') return text;
      throw refuse(
        `${at}[${i}]`,
        `${at}[${i}] has the type ${shown(type)}; only { type: "text", text } is served, since the model reads text alone.`,
      );
    })
    .join('');
}

function readCalls(calls: unknown, at: string): CalledTool[] {
  if (calls === undefined || calls === null) return [];
  if (!Array.isArray(calls)) throw refuse(at, `${at} is ${shown(calls)}; give a list.`);
  return calls.map((call: unknown, i) => {
    const { id, type, function: called } = isObject(call) ? call : {};
    const { name, arguments: args } = isObject(called) ? called : {};
    if (
      typeof id === 'string' &&
      (type ?? 'function') === 'function' &&
      typeof name === 'string' &&
      typeof args === 'string'
    )
      return { id, name, arguments: args };
    throw refuse(
      `${at}[${i}]`,
      `${at}[${i}] is no call; give { id, type: "function", function: { name, arguments } } with texts in all.`,
    );
  });
}

/** Throws ApiError that names the first tool that cannot be served. */
export function readTools(given: unknown): Tool[] {
  if (given === undefined || given === null) return [];
  if (!Array.isArray(given) || given.length > MAX_TOOLS)
    throw refuse('tools', `tools is ${shown(given)}; give a list of at most ${MAX_TOOLS}.`);
  const tools = given.map((tool: unknown, i) => readTool(tool, `tools[${i}]`));
  const twice = tools.find(({ name }, i) => tools.findIndex((other) => other.name === name) < i);
  if (twice) throw refuse('tools', `tools names "${twice.name}" twice; a call could mean either.`);
  return tools;
}

function readTool(tool: unknown, at: string): Tool {
  const { type, function: given } = isObject(tool) ? tool : {};
  if (type !== 'function' || !isObject(given))
    throw refuse(
      at,
      `${at} is ${shown(tool)} of type ${shown(type)}; give { type: "function", function: { name, ... } }.`,
    );
  const { name, description = '', parameters = {} } = given;
  if (typeof name !== 'string' || !/^[\w.-]{1,64}$/.test(name))
    throw refuse(
      `${at}.function.name`,
      `${at}.function.name is ${shown(name)}; allowed: 1 to 64 letters, digits, ., _ and -.`,
    );
  if (description !== null && typeof description !== 'string')
    throw refuse(`${at}.function.description`, `${at}.function.description is ${shown(description)}; give a text.`);
  const schema = toolSchema(parameters, `${at}.function.parameters`);
  const execute = () => Promise.reject(new Error('The caller runs the tools.'));
  return { name, description: description ?? '', parameters: schema, execute };
}

/** A schema with what our own checks read of it in one form; a property without a type of its own may be anything. */
function toolSchema(given: unknown, at: string): ToolSchema {
  const { type = 'object', properties = {}, required = [], ...rest } = isObject(given) ? given : { type: undefined };
  if (!isObject(given) || type !== 'object' || !isObject(properties))
    throw refuse(at, `${at} is ${shown(given)}; give a JSON schema of type object, or leave it out for no arguments.`);
  if (!Array.isArray(required) || !required.every((key) => typeof key === 'string' && Object.hasOwn(properties, key)))
    throw refuse(`${at}.required`, `${at}.required must be a list of names that are among the properties.`);
  const read = Object.entries(properties).map(([key, property]): [string, ArgumentSchema] => {
    if (isObject(property)) return [key, property];
    throw refuse(`${at}.properties.${key}`, `${at}.properties.${key} is ${shown(property)}; give a schema.`);
  });
  const typed = read.map(([key, schema]): [string, ArgumentSchema] => [
    key,
    typeof schema.type === 'string' ? schema : { ...schema, type: 'any' },
  ]);
  return { ...rest, type, properties: Object.fromEntries(typed), required: required as string[] };
}

/** True if two messages say the same: arguments of calls are compared as JSON, since clients write them again. */
export function isSame(a: ChatMessage, b: ChatMessage): boolean {
  const [callsA, callsB] = [a.toolCalls ?? [], b.toolCalls ?? []];
  return (
    a.role === b.role &&
    a.content === b.content &&
    a.name === b.name &&
    a.toolCallId === b.toolCallId &&
    callsA.length === callsB.length &&
    callsA.every(({ id, name, arguments: args }, i) => {
      const other = callsB[i];
      return (
        id === other.id && name === other.name && (args === other.arguments || plain(args) === plain(other.arguments))
      );
    })
  );
}

/** Returns JSON without white space; keys stay in their order. */
const plain = (text: string): string => JSON.stringify(parseJson(text)) ?? text;

/** The messages before the first reply: what the episodes of a group have in common. */
export function firstMessages(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const end = messages.findIndex(({ role }) => role === 'assistant');
  return end < 0 ? messages : messages.slice(0, end);
}

/** Returns the message as a chat template takes it; arguments as an object, but for keys that name a control token, which only a text can hide. */
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
