/**
 * Shared by the translators of other APIs (anthropic.ts, responses.ts), which convert a request to a chat completion and the answer back.
 */

import * as v from 'valibot';
import { ApiError } from './apiError.ts';
import type { IgnoredField } from './fields.ts';
import type { ChatCompletion, ChatCompletionChunk, FinishReason, Logprobs, ToolCallShape, Usage } from './shapes.ts';

/** A server-sent event of a streamed answer. Its type is also the event's name. */
export interface NamedEvent {
  type: string;
  [field: string]: unknown;
}

/** A request of another API, translated to a chat completion, and the functions that translate the answer back. */
export interface Translated {
  /** Body of the chat completion request; `readRequest` validates it. */
  body: Record<string, unknown>;
  /** Id of the episode that contains the earlier reply to which the request refers; undefined if it refers to none. */
  episode?: string | undefined;
  /** Names of parameters in the other API, by their names in chat completions. Errors and hints are reported with these names. */
  names: Readonly<Record<string, string>>;
  /** Nested fields of the request in the other API that are not read. */
  ignored: readonly IgnoredField[];
  /** Converts a complete chat completion to an answer of the other API. */
  whole(completion: ChatCompletion): object;
  /** Converts a streamed chat completion to events of the other API. */
  events(chunks: AsyncIterable<ChatCompletionChunk>): AsyncGenerator<NamedEvent, undefined>;
}

/** Returns an error about a chat completion parameter with the name that this parameter has in the other API. */
export function inNamesOf({ names }: Pick<Translated, 'names'>, error: unknown): unknown {
  if (!(error instanceof ApiError) || error.param === null) return error;
  const { message, status, code, param } = error;
  const renamed = nameIn(names, param);
  if (renamed === param) return error;
  const words = message.startsWith(param) ? renamed + message.slice(param.length) : message;
  return new ApiError(words, { status, code, param: renamed });
}

/** Returns the path of a chat completion parameter with the name that the parameter has in another API. */
export function nameIn(names: Readonly<Record<string, string>> = {}, path: string): string {
  const [first] = path.split(/[.[]/);
  return Object.hasOwn(names, first) ? names[first] + path.slice(first.length) : path;
}

/** Schema of a field that must be absent, because it is not served for the given reason. */
export const unserved = (why: string) => v.nullish(v.custom<null>(() => false, `nothing, because ${why}`));

/** Returns an assistant message of a chat completion request. */
export const replyMessage = (content: string, calls: readonly ToolCallShape[] = []) => ({
  role: 'assistant' as const,
  content,
  ...(calls.length > 0 && { tool_calls: [...calls] }),
});

/** Returns a tool call of a chat completion request. */
export const callMessage = (id: string, name: string, args: string): ToolCallShape => {
  return { id, type: 'function', function: { name, arguments: args } };
};

/** A part of a streamed reply: the fields of the first chunk (head), a piece of text, a complete tool call, or the end. */
type Piece =
  | { head: Pick<ChatCompletionChunk, 'id' | 'model' | 'created'> }
  | { text: string }
  | { call: ToolCallShape }
  | {
      end: { finish: FinishReason; stop: string | undefined; logprobs: Logprobs['content'] | undefined; usage: Usage };
    };

/** Converts the chunks of a streamed chat completion to parts: the head first, the end last. */
export async function* piecesOf(chunks: AsyncIterable<ChatCompletionChunk>): AsyncGenerator<Piece, undefined> {
  let isBegun = false;
  let [finish, stop, logprobs]: [FinishReason, string?, Logprobs['content']?] = ['stop'];
  let total: Usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
  for await (const chunk of chunks) {
    if (!isBegun) yield { head: chunk };
    isBegun = true;
    total = chunk.usage ?? total;
    for (const { delta, ...choice } of chunk.choices) {
      if (delta.content) yield { text: delta.content };
      for (const { index: _, ...call } of delta.tool_calls ?? []) yield { call };
      if (choice.finish_reason)
        [finish, stop, logprobs] = [choice.finish_reason, choice.stop_reason, choice.logprobs?.content];
    }
  }
  yield { end: { finish, stop, logprobs, usage: total } };
}
