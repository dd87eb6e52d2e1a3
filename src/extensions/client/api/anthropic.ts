/** Translates requests to Anthropic's /v1/messages to chat completions, and the answers back. */

import * as v from 'valibot';
import { parseJson } from '../../../rollout/tools/call.ts';
import { isObject } from '../../../tasks/toolSchema.ts';
import { type ApiError, refuse } from './apiError.ts';
import { ignoredFields } from './fields.ts';
import { readSome, whole } from './read.ts';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  FinishReason,
  MessageShape,
  ToolCallShape,
  Usage,
} from './shapes.ts';
import { callMessage, type NamedEvent, piecesOf, replyMessage, type Translated, unserved } from './translated.ts';

const ERRORS: Record<number, string> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  500: 'api_error',
  503: 'overloaded_error',
};

/** Error code for a request with a thread. Anthropic's client libraries then send the complete conversation instead. */
const NO_THREADS = 'thread_unsupported_request';

/** Returns the body of an error in the form of Anthropic's API. */
export const anthropicError = ({ status, message, code }: ApiError) => ({
  type: 'error',
  error: {
    type: ERRORS[status] ?? 'invalid_request_error',
    message,
    ...(code === NO_THREADS && { details: { error_code: code, unsupported: ['thread'] } }),
  },
});

const TEXT = 'a text, or a list of { type: "text", text }, because the model reads text alone';
const texts = v.pipe(
  v.array(v.object({ type: v.literal('text', TEXT), text: v.string(TEXT) }, TEXT), TEXT),
  v.transform((blocks) => blocks.map(({ text }) => text).join('')),
);
const content = v.lazy((given): v.GenericSchema<unknown, string> => (Array.isArray(given) ? texts : v.string(TEXT)));

const USE = '{ type: "tool_use", id, name, input }';
const RESULT = '{ type: "tool_result", tool_use_id, content }';
const textBlock = v.object({ type: v.literal('text'), text: v.string(TEXT) }, TEXT);
const useBlock = v.object(
  {
    type: v.literal('tool_use'),
    id: v.string(USE),
    name: v.string(USE),
    input: v.custom<Record<string, unknown>>(isObject, USE),
  },
  USE,
);
const thought = v.object({ type: v.picklist(['thinking', 'redacted_thinking']) });
const resultBlock = v.object(
  {
    type: v.literal('tool_result'),
    tool_use_id: v.string(RESULT),
    content: v.nullish(content, ''),
    is_error: v.nullish(v.boolean('true or false'), false),
  },
  RESULT,
);

const MESSAGE = '{ role, content } with the role user or assistant';
const USER = 'text or tool_result, because the model reads text alone';
const user = v.pipe(
  v.object({ content: v.array(v.variant('type', [textBlock, resultBlock], USER)) }),
  v.transform(({ content: blocks }) => ofUser(blocks)),
);
const assistant = v.pipe(
  v.object({ content: v.array(v.variant('type', [textBlock, useBlock, thought], 'text, tool_use or thinking')) }),
  v.transform(({ content: blocks }) => ofAssistant(blocks)),
);
const plain = v.pipe(
  v.object({ role: v.picklist(['user', 'assistant'], MESSAGE), content: v.string(TEXT) }, MESSAGE),
  v.transform((given): MessageShape[] => [given]),
);
const message = v.lazy((given): v.GenericSchema<unknown, MessageShape[]> => {
  if (!isObject(given) || !Array.isArray(given['content'])) return plain;
  return given['role'] === 'user' ? user : given['role'] === 'assistant' ? assistant : plain;
});

/** Converts the blocks of a user message: each tool_result becomes a tool message, texts next to each other become one user message. */
function ofUser(
  blocks: readonly (v.InferOutput<typeof textBlock> | v.InferOutput<typeof resultBlock>)[],
): MessageShape[] {
  const messages: MessageShape[] = [];
  let isText = false;
  for (const block of blocks) {
    if (block.type === 'tool_result')
      messages.push({ role: 'tool', tool_call_id: block.tool_use_id, content: resultOf(block) });
    else if (isText) messages.push({ role: 'user', content: `${messages.pop()!.content as string}${block.text}` });
    else messages.push({ role: 'user', content: block.text });
    isText = block.type === 'text';
  }
  return messages.length > 0 ? messages : [{ role: 'user', content: '' }];
}

/**
 * Returns the text of a tool result. A chat message has no is_error field, so an error gets the prefix "Error: ", as errors of the
 * trainer's own tools do.
 */
const resultOf = ({ content: text, is_error: isError }: v.InferOutput<typeof resultBlock>): string =>
  isError && !/^error\b/i.test(text) ? `Error: ${text}` : text;

function ofAssistant(
  blocks: readonly (v.InferOutput<typeof textBlock> | v.InferOutput<typeof useBlock> | v.InferOutput<typeof thought>)[],
): MessageShape[] {
  const said = blocks.flatMap((block) => (block.type === 'text' ? [block.text] : []));
  const calls = blocks.flatMap((block) =>
    block.type === 'tool_use' ? [callMessage(block.id, block.name, JSON.stringify(block.input))] : [],
  );
  return [replyMessage(said.join(''), calls)];
}

const TOOL = '{ name, description?, input_schema }; tools that Anthropic runs or defines are not served';
const tool = v.pipe(
  v.object(
    {
      type: v.nullish(v.literal('custom', TOOL)),
      name: v.optional(v.unknown()),
      description: v.optional(v.unknown()),
      input_schema: v.custom<Record<string, unknown>>(isObject, TOOL),
      strict: v.optional(v.unknown()),
    },
    TOOL,
  ),
  v.transform(({ name, description, input_schema: parameters, strict }) => {
    return { type: 'function', function: { name, description, parameters, strict } };
  }),
);

const CHOICE = '{ type: "auto", "any", "tool" with a name, or "none" }';
const choice = v.object(
  {
    type: v.picklist(['auto', 'any', 'tool', 'none'], CHOICE),
    name: v.optional(v.string(CHOICE)),
    disable_parallel_tool_use: v.nullish(v.boolean('true or false')),
  },
  CHOICE,
);

const FORMAT = '{ type: "json_schema", schema }';
const format = v.nullish(
  v.object({ type: v.literal('json_schema', FORMAT), schema: v.custom<object>(isObject, FORMAT) }, FORMAT),
);
const MESSAGES = 'a list of { role, content }';
const ELSEWHERE = 'the client runs the tools';
const NO_SERVERS = `an empty list, because ${ELSEWHERE}`;
const REQUEST = {
  messages: v.pipe(
    v.array(message, MESSAGES),
    v.transform((all) => all.flat()),
  ),
  max_tokens: whole(1, 2 ** 31 - 1),
  system: v.nullish(content),
  tools: v.nullish(v.array(tool, 'a list of tools')),
  tool_choice: v.nullish(choice),
  stop_sequences: v.nullish(v.array(v.string('a text'), 'a list of texts')),
  metadata: v.nullish(v.looseObject({ user_id: v.nullish(v.string('a text')) }, '{ user_id }')),
  thinking: v.nullish(v.looseObject({ type: v.optional(v.unknown()) }, '{ type }')),
  output_config: v.nullish(v.looseObject({ format }, '{ format, effort }')),
  output_format: format,
  thread: v.nullish(v.unknown()),
  mcp_servers: v.nullish(v.pipe(v.array(v.unknown(), NO_SERVERS), v.maxLength(0, NO_SERVERS))),
  container: unserved(ELSEWHERE),
  n: unserved('a call has one reply'),
};

/** Names in Anthropic's API, by the name of the parameter in chat completions, if the two differ. */
const NAMES = {
  stop: 'stop_sequences',
  response_format: 'output_config.format',
  parallel_tool_calls: 'tool_choice.disable_parallel_tool_use',
  user: 'metadata.user_id',
};

/** Translates a request. Throws ApiError if the request is not valid for /v1/messages, or needs a feature that is not served. */
export function fromMessages(given: unknown): Translated {
  const { system, tools, tool_choice: chosen, stop_sequences: stop, ...more } = readSome(REQUEST, given);
  const { metadata, thinking, output_config: output, output_format: older, mcp_servers: _, thread, ...rest } = more;
  if (thread)
    throw refuse('thread', 'Threads are not kept by this server. Send the complete conversation.', NO_THREADS);
  const { user_id: caller, ...names } = metadata ?? {};
  const form = output?.format ?? older;
  const body = {
    ...rest,
    messages: [...(system ? [{ role: 'system', content: system }] : []), ...rest.messages],
    ...(tools && { tools }),
    ...(chosen && { tool_choice: choiceOf(chosen) }),
    ...(chosen?.disable_parallel_tool_use && { parallel_tool_calls: false }),
    ...(stop && stop.length > 0 && { stop }),
    ...(caller && { user: caller }),
    ...(Object.keys(names).length > 0 && { metadata: names }),
    ...(thinking && thinking.type !== 'disabled' && { thinking }),
    ...(form && { response_format: { type: 'json_schema', json_schema: { name: 'reply', schema: form.schema } } }),
    ...(rest['stream'] === true && { stream_options: { include_usage: true } }),
  };
  return {
    body,
    names: NAMES,
    ignored: ignoredFields('messages', given as object),
    whole: messageOf,
    events: eventsOf,
  };
}

function choiceOf({ type, name }: v.InferOutput<typeof choice>): unknown {
  if (type === 'tool') return { type: 'function', function: { name } };
  return type === 'any' ? 'required' : type;
}

const headOf = ({ id, model }: Pick<ChatCompletion, 'id' | 'model'>) => {
  return { id: id.replace('chatcmpl-', 'msg_'), type: 'message', role: 'assistant', model };
};

function messageOf(completion: ChatCompletion): object {
  const [{ message: reply, finish_reason: finish, stop_reason: stop }] = completion.choices;
  const { content: said, tool_calls: calls = [] } = reply;
  const uses = calls.map((call) => {
    return { ...useOf(call), input: parseJson(call.function.arguments) ?? {} };
  });
  return {
    ...headOf(completion),
    content: said || uses.length === 0 ? [{ type: 'text', text: said ?? '' }, ...uses] : uses,
    ...stopOf(finish, stop),
    usage: usageOf(completion.usage),
  };
}

const useOf = ({ id, function: { name } }: ToolCallShape) => ({ type: 'tool_use', id, name });

const STOPS: Record<FinishReason, string> = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' };
const stopOf = (finish: FinishReason, stop: string | undefined) => {
  return { stop_reason: stop === undefined ? STOPS[finish] : 'stop_sequence', stop_sequence: stop ?? null };
};

const usageOf = ({ prompt_tokens: input, completion_tokens: output }: Usage) => {
  return { input_tokens: input, output_tokens: output, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
};

async function* eventsOf(chunks: AsyncIterable<ChatCompletionChunk>): AsyncGenerator<NamedEvent, undefined> {
  let index = -1;
  let isText = false;
  const startOf = (block: object): NamedEvent => ({
    type: 'content_block_start',
    index: ++index,
    content_block: block,
  });
  const deltaOf = (delta: object): NamedEvent => ({ type: 'content_block_delta', index, delta });
  const emptyText = () => startOf({ type: 'text', text: '' });
  for await (const piece of piecesOf(chunks)) {
    if ('head' in piece) {
      // Token counts are 0 here. They are known only at the end, and sent in message_delta.
      const unknown = { stop_reason: null, stop_sequence: null, usage: usageOf(NO_TOKENS) };
      yield { type: 'message_start', message: { ...headOf(piece.head), content: [], ...unknown } };
      continue;
    }
    if ('text' in piece) {
      if (!isText) yield emptyText();
      isText = true;
      yield deltaOf({ type: 'text_delta', text: piece.text });
      continue;
    }
    if ('end' in piece && index < 0) yield emptyText();
    if (index >= 0) yield { type: 'content_block_stop', index };
    if ('call' in piece) {
      yield startOf({ ...useOf(piece.call), input: {} });
      yield deltaOf({ type: 'input_json_delta', partial_json: piece.call.function.arguments });
    } else {
      const { finish, stop, usage } = piece.end;
      yield { type: 'message_delta', delta: stopOf(finish, stop), usage: usageOf(usage) };
      yield { type: 'message_stop' };
    }
  }
}

const NO_TOKENS: Usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
