/**
 * Translates requests to OpenAI's /v1/responses to chat completions, and the answers back. Stores replies in memory, so that later requests
 * can refer to them by id.
 */

import * as v from 'valibot';
import { isObject } from '../../../tasks/toolSchema.ts';
import { refuse } from './apiError.ts';
import { ignoredFields } from './fields.ts';
import { readSome, whole } from './read.ts';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  FinishReason,
  Logprobs,
  MessageShape,
  ToolCallShape,
  Usage,
} from './shapes.ts';
import { callMessage, type NamedEvent, piecesOf, replyMessage, type Translated, unserved } from './translated.ts';

/**
 * A stored conversation that ends with a reply: the conversation before the request (`before`), and the messages of the request and its
 * reply.
 */
interface Kept {
  before: Kept | undefined;
  messages: readonly MessageShape[];
}

/** The newest replies, by the end of the reply's id, which is part of the ids of all its items. Stored only in memory. */
export class KeptResponses {
  readonly #kept = new Map<string, Kept & { size: number }>();
  readonly #most: number;
  readonly #mostCharacters: number;
  #characters = 0;

  /**
   * Beyond either maximum, the oldest replies are dropped.
   * @param most maximum number of replies
   * @param mostCharacters maximum number of characters of all replies together
   */
  constructor(most = 4096, mostCharacters = 2 ** 26) {
    [this.#most, this.#mostCharacters] = [most, mostCharacters];
  }

  keep(key: string, kept: Kept): void {
    const { length: size } = JSON.stringify(kept.messages);
    this.#kept.set(key, { ...kept, size });
    this.#characters += size;
    for (const [oldest, one] of this.#kept) {
      if (this.#kept.size <= this.#most && this.#characters <= this.#mostCharacters) break;
      this.#kept.delete(oldest);
      this.#characters -= one.size;
    }
  }

  /** Returns the conversation that ends with this reply. Throws ApiError if the reply is not stored. */
  conversation(id: string): Kept {
    const kept = this.#kept.get(id.replace(/^resp_/, ''));
    if (kept) return kept;
    throw this.#isUnknown('previous_response_id', id, 'previous_response_not_found');
  }

  /** Returns one item of a stored reply (its text or a tool call) as a message. Throws ApiError if the reply is not stored. */
  item(id: string): MessageShape {
    const [, kind, key, index = '0'] = /^(msg|fc)_([0-9a-f]+-[0-9a-f]+)(?:-(\d+))?$/.exec(id) ?? [];
    const reply = this.#kept.get(key)?.messages.at(-1);
    if (reply?.role === 'assistant') {
      const call = reply.tool_calls?.[Number(index)];
      if (kind === 'fc' && call) return replyMessage('', [call]);
      if (kind === 'msg') return replyMessage(reply.content as string);
    }
    throw this.#isUnknown('input', id, null);
  }

  #isUnknown(param: string, id: string, code: string | null) {
    return refuse(
      param,
      `There is no reply ${JSON.stringify(id.slice(0, 80))}: the newest ${this.#most} are kept in memory, but not after a restart or with ` +
        'store: false. Send the messages themselves.',
      code,
    );
  }
}

const TEXT = 'a text, or a list of { type: "input_text" or "output_text", text }, because the model reads text alone';
const part = v.pipe(
  v.variant(
    'type',
    [
      v.object({ type: v.picklist(['input_text', 'output_text', 'text']), text: v.string(TEXT) }, TEXT),
      v.object({ type: v.literal('refusal'), refusal: v.string(TEXT) }, TEXT),
    ],
    TEXT,
  ),
  v.transform((given) => (given.type === 'refusal' ? given.refusal : given.text)),
);
const parts = v.pipe(
  v.array(part, TEXT),
  v.transform((texts) => texts.join('')),
);
const content = v.lazy((given): v.GenericSchema<unknown, string> => (Array.isArray(given) ? parts : v.string(TEXT)));

const ITEM =
  '{ role, content } with the role system, developer, user or assistant, or an item of the type function_call, ' +
  'function_call_output, reasoning or item_reference';
const CALL = '{ type: "function_call", call_id, name, arguments } with texts in all';
const OUTPUT = '{ type: "function_call_output", call_id, output }';
const said = v.pipe(
  v.object(
    {
      type: v.nullish(v.literal('message', ITEM)),
      role: v.picklist(['system', 'developer', 'user', 'assistant'], ITEM),
      content,
    },
    ITEM,
  ),
  v.transform(({ role, content: text }): MessageShape[] => [{ role, content: text }]),
);
const call = v.pipe(
  v.object({ call_id: v.string(CALL), name: v.string(CALL), arguments: v.string(CALL) }, CALL),
  v.transform(({ call_id: id, name, arguments: args }): MessageShape[] => [
    replyMessage('', [callMessage(id, name, args)]),
  ]),
);
const output = v.pipe(
  v.object({ call_id: v.string(OUTPUT), output: content }, OUTPUT),
  v.transform(({ call_id: id, output: text }): MessageShape[] => [{ role: 'tool', tool_call_id: id, content: text }]),
);
/** Drops reasoning items. Replies of this server have none, so such an item comes from another model. */
const reasoning = v.pipe(
  v.object({}),
  v.transform((): MessageShape[] => []),
);

const referenced = (kept: KeptResponses) =>
  v.pipe(
    v.object({ id: v.string('{ type: "item_reference", id }') }, '{ type: "item_reference", id }'),
    v.transform(({ id }): MessageShape[] => [kept.item(id)]),
  );

function inputSchema(kept: KeptResponses) {
  const kinds = new Map<unknown, v.GenericSchema<unknown, MessageShape[]>>([
    ['function_call', call],
    ['function_call_output', output],
    ['reasoning', reasoning],
    ['item_reference', referenced(kept)],
  ]);
  const item = v.lazy((given) => kinds.get(isObject(given) ? given['type'] : undefined) ?? said);
  const INPUT = 'a text, or a list of items';
  const items = v.pipe(
    v.array(item, INPUT),
    v.transform((all) => all.flat()),
  );
  const text = v.pipe(
    v.string(INPUT),
    v.transform((given): MessageShape[] => [{ role: 'user', content: given }]),
  );
  return v.lazy((given): v.GenericSchema<unknown, MessageShape[]> => (Array.isArray(given) ? items : text));
}

/** Joins the items of one reply, a text and its tool calls, into one message. */
function joined(messages: readonly MessageShape[]): MessageShape[] {
  return messages.reduce<MessageShape[]>((all, message) => {
    const last = all.at(-1);
    const isMore = message.role === 'assistant' && message.tool_calls && !message.content;
    if (!isMore || last?.role !== 'assistant') return [...all, message];
    const calls = [...(last.tool_calls ?? []), ...message.tool_calls!];
    return [...all.slice(0, -1), replyMessage(last.content as string, calls)];
  }, []);
}

const TOOL = '{ type: "function", name, description?, parameters? }, because the client runs the tools';
const tool = v.pipe(
  v.looseObject({ type: v.literal('function', TOOL), name: v.string(TOOL) }, TOOL),
  v.transform(({ type, name, description, parameters, strict }) => {
    return { type, function: { name, description, parameters: parameters ?? undefined, strict } };
  }),
);

const CHOICE = '"auto", "none", "required" or { type: "function", name }';
const choice = v.union(
  [
    v.picklist(['auto', 'none', 'required']),
    v.pipe(
      v.object({ type: v.literal('function'), name: v.string() }),
      v.transform(({ type, name }) => ({ type, function: { name } })),
    ),
  ],
  CHOICE,
);

const flag = v.nullish(v.boolean('true or false'));
const INCLUDE = 'a list of texts';
const LOGPROBS = 'message.output_text.logprobs';
/** Values of `include` that are accepted. For reasoning.encrypted_content nothing is added, because replies have no reasoning items. */
const INCLUDED = [LOGPROBS, 'reasoning.encrypted_content'];

const entries = (kept: KeptResponses) => ({
  input: v.optional(inputSchema(kept), []),
  instructions: v.nullish(v.string('a text')),
  previous_response_id: v.nullish(v.string('the id of a response')),
  tools: v.nullish(v.array(tool, 'a list of tools')),
  tool_choice: v.nullish(choice),
  text: v.nullish(v.looseObject({ format: v.optional(v.unknown()) }, '{ format, verbosity }')),
  reasoning: v.nullish(v.looseObject({}, '{ effort }')),
  max_output_tokens: v.nullish(whole(1, 2 ** 31 - 1)),
  top_logprobs: v.optional(v.unknown()),
  include: v.nullish(v.array(v.string(INCLUDE), INCLUDE)),
  stream: flag,
  stream_options: v.optional(v.unknown()),
  store: flag,
  truncation: v.nullish(v.picklist(['auto', 'disabled'], '"auto" or "disabled"')),
  background: v.nullish(v.literal(false, 'false: a response is computed while the request waits')),
  conversation: unserved('conversations are not stored: use previous_response_id, or send the messages'),
  prompt: unserved('no prompts are stored'),
  messages: unserved('the conversation is in input'),
  n: unserved('a response has one reply'),
});

/** Parameters that have different names in the two APIs: name in chat completions, and name in the Responses API. */
const NAMES = {
  messages: 'input',
  max_completion_tokens: 'max_output_tokens',
  response_format: 'text.format',
};

/** Translates a request. Throws ApiError if the request is not valid for /v1/responses, or needs a feature that is not served. */
export function fromResponses(given: unknown, kept: KeptResponses): Translated {
  const read = readSome(entries(kept), given);
  const { input, instructions, previous_response_id: previous, tools, store, stream, ...more } = read;
  const { tool_choice: chosen, text, reasoning: _, max_output_tokens: most, top_logprobs: top, ...others } = more;
  const { include, stream_options: __, background: ___, ...rest } = others;
  const before = previous ? kept.conversation(previous) : undefined;
  const own = joined(input);
  const logprobs = Boolean(top) || include?.includes(LOGPROBS);
  const notIncluded = include?.filter((name) => !INCLUDED.includes(name)) ?? [];
  const body = {
    ...rest,
    messages: [...(instructions ? [{ role: 'system', content: instructions }] : []), ...conversationOf(before), ...own],
    ...(tools && { tools }),
    ...(chosen && { tool_choice: chosen }),
    ...(text?.format !== undefined && { response_format: formatOf(text.format) }),
    ...(most && { max_completion_tokens: most }),
    ...(logprobs && { logprobs, top_logprobs: top ?? 0 }),
    ...(notIncluded.length > 0 && { include: notIncluded }),
    ...(stream && { stream, stream_options: { include_usage: true } }),
  };
  const answer: Answering = {
    request: given as Record<string, unknown>,
    keep(key, reply) {
      if (store !== false) kept.keep(key, { before, messages: [...own, reply] });
    },
  };
  return {
    body,
    episode: episodeIn(previous) ?? episodeOfItems((given as { input?: unknown }).input),
    names: NAMES,
    ignored: ignoredFields('responses', given as object),
    whole: (completion) => wholeOf(answer, completion),
    events: (chunks) => eventsOf(answer, chunks),
  };
}

/** Data from which an answer is built, in addition to the chat completion. */
interface Answering {
  request: Record<string, unknown>;
  /** Called with the complete reply, to store it. `key` is the part that the ids of the reply's items share. */
  keep(key: string, reply: MessageShape): void;
}

/** Returns the id of the episode, which is the first part of the id of a response or an item: `resp_EPISODE-CALL`. */
const episodeIn = (id: unknown): string | undefined =>
  typeof id === 'string' ? /^(?:resp|msg|fc)_([0-9a-f]{24})-/.exec(id)?.[1] : undefined;

/**
 * Returns the id of the episode in which the model wrote the last reply among the input's items; undefined if the input has no item of a
 * reply. Clients send the items of replies back with their ids, so that episodes with equal replies can be told apart.
 */
function episodeOfItems(input: unknown): string | undefined {
  const items: unknown[] = Array.isArray(input) ? input : [];
  return episodeIn((items as { id?: unknown }[]).findLast((item) => isObject(item) && episodeIn(item['id']))?.id);
}

function conversationOf(kept: Kept | undefined): MessageShape[] {
  const turns: (readonly MessageShape[])[] = [];
  for (let turn = kept; turn; turn = turn.before) turns.unshift(turn.messages);
  return turns.flat();
}

function formatOf(format: unknown): unknown {
  if (!isObject(format) || format['type'] !== 'json_schema') return format;
  const { type, ...schema } = format;
  return { type, json_schema: schema };
}

type Head = Pick<ChatCompletion, 'id' | 'model' | 'created'>;

interface Reply {
  text: string;
  calls: readonly ToolCallShape[];
  finish: FinishReason;
  usage: Usage;
  logprobs: Logprobs['content'] | undefined;
}

function wholeOf(answer: Answering, completion: ChatCompletion): object {
  const [{ message, finish_reason: finish, logprobs }] = completion.choices;
  const { content: text, tool_calls: calls = [] } = message;
  return ended(answer, completion, {
    text: text ?? '',
    calls,
    finish,
    usage: completion.usage,
    logprobs: logprobs?.content,
  });
}

/** Stores a complete reply, and returns the complete response. */
function ended({ request, keep }: Answering, head: Head, reply: Reply): object {
  const { text, calls, finish, usage, logprobs } = reply;
  const key = keyOf(head);
  keep(key, replyMessage(text, calls));
  const status = finish === 'length' ? 'incomplete' : 'completed';
  const said = text || calls.length === 0 ? [textItem(key, status, [textPart(text, logprobs)])] : [];
  return {
    ...responseOf(request, head),
    status,
    incomplete_details: finish === 'length' ? { reason: 'max_output_tokens' } : null,
    completed_at: Math.floor(Date.now() / 1000),
    output: [...said, ...calls.map((one, i) => callItem(key, i, one))],
    usage: {
      input_tokens: usage.prompt_tokens,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: usage.completion_tokens,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: usage.total_tokens,
    },
  };
}

async function* eventsOf(
  answer: Answering,
  chunks: AsyncIterable<ChatCompletionChunk>,
): AsyncGenerator<NamedEvent, undefined> {
  let number = 0;
  for await (const { type, ...fields } of unnumbered(answer, chunks))
    yield { type, sequence_number: number++, ...fields };
}

async function* unnumbered(
  answer: Answering,
  chunks: AsyncIterable<ChatCompletionChunk>,
): AsyncGenerator<NamedEvent, undefined> {
  const calls: ToolCallShape[] = [];
  let head: Head | undefined;
  let text: string | undefined;
  let isOpen = false;
  const textAt = () => ({ item_id: `msg_${keyOf(head!)}`, output_index: 0, content_index: 0 });
  const opened = (): NamedEvent[] => {
    [text, isOpen] = ['', true];
    return [
      { type: 'response.output_item.added', output_index: 0, item: textItem(keyOf(head!), 'in_progress', []) },
      { type: 'response.content_part.added', ...textAt(), part: textPart('') },
    ];
  };
  const closed = (status: string): NamedEvent[] => {
    isOpen = false;
    const part = textPart(text!);
    return [
      { type: 'response.output_text.done', ...textAt(), text, logprobs: [] },
      { type: 'response.content_part.done', ...textAt(), part },
      { type: 'response.output_item.done', output_index: 0, item: textItem(keyOf(head!), status, [part]) },
    ];
  };
  for await (const piece of piecesOf(chunks)) {
    if ('head' in piece) {
      head = piece.head;
      const response = responseOf(answer.request, head);
      yield { type: 'response.created', response };
      yield { type: 'response.in_progress', response };
    } else if ('text' in piece) {
      if (text === undefined) yield* opened();
      text += piece.text;
      yield { type: 'response.output_text.delta', ...textAt(), delta: piece.text, logprobs: [] };
    } else if ('call' in piece) {
      if (isOpen) yield* closed('completed');
      const index = calls.push(piece.call) - 1;
      yield* callEvents(callItem(keyOf(head!), index, piece.call), index + (text === undefined ? 0 : 1));
    } else {
      const { finish } = piece.end;
      if (text === undefined && calls.length === 0) yield* opened();
      if (isOpen) yield* closed(finish === 'length' ? 'incomplete' : 'completed');
      const type = finish === 'length' ? 'response.incomplete' : 'response.completed';
      yield { type, response: ended(answer, head!, { ...piece.end, text: text ?? '', calls }) };
    }
  }
}

function callEvents(item: ReturnType<typeof callItem>, index: number): NamedEvent[] {
  const at = { item_id: item.id, output_index: index };
  const { arguments: args, name } = item;
  return [
    {
      type: 'response.output_item.added',
      output_index: index,
      item: { ...item, arguments: '', status: 'in_progress' },
    },
    { type: 'response.function_call_arguments.delta', ...at, delta: args },
    { type: 'response.function_call_arguments.done', ...at, name, arguments: args },
    { type: 'response.output_item.done', output_index: index, item },
  ];
}

/** Returns the end of a completion's id, which is also the end of the response's id and part of the ids of its items. */
const keyOf = ({ id }: Head): string => id.replace('chatcmpl-', '');

const textItem = (key: string, status: string, content: object[]) => {
  return { id: `msg_${key}`, type: 'message', role: 'assistant', status, content };
};

const textPart = (text: string, logprobs: Logprobs['content'] = []) => {
  return { type: 'output_text', text, annotations: [], logprobs };
};

const callItem = (key: string, index: number, { id, function: { name, arguments: args } }: ToolCallShape) => {
  return { id: `fc_${key}-${index}`, type: 'function_call', status: 'completed', call_id: id, name, arguments: args };
};

/** Fields of a request that the response repeats, each with its default. */
const REPEATED = {
  instructions: null,
  max_output_tokens: null,
  metadata: {},
  parallel_tool_calls: true,
  previous_response_id: null,
  reasoning: { effort: null, summary: null },
  store: true,
  temperature: null,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_p: null,
  truncation: 'disabled',
  user: null,
};

/** Returns the fields of a response that are known before its reply. */
function responseOf(request: Record<string, unknown>, head: Head) {
  const repeated = Object.entries(REPEATED).map(([key, value]) => [key, request[key] ?? value] as const);
  return {
    id: `resp_${keyOf(head)}`,
    object: 'response',
    created_at: head.created,
    model: head.model,
    status: 'in_progress',
    error: null,
    incomplete_details: null as object | null,
    background: false,
    ...Object.fromEntries(repeated),
    output: [] as object[],
    usage: null as object | null,
  };
}
