/** Shared parts of the translators of other APIs. A translator turns a request into one for chat completions, and the reply back. */

import * as v from 'valibot';
import { ApiError } from './apiError.ts';
import type { ChatCompletion, ChatCompletionChunk, FinishReason, Logprobs, ToolCallShape, Usage } from './shapes.ts';

/** An event of a stream. Its type is also the name of the server-sent event. */
export interface NamedEvent {
  type: string;
  [field: string]: unknown;
}

/** A request of another API as one for chat completions, and the functions that write its answer. */
export interface Translated {
  /** Body of the chat request, for `readRequest`. */
  body: Record<string, unknown>;
  /** Id of the episode whose reply the request names; undefined if it names none. */
  episode?: string | undefined;
  /** Names of this API for parameters of the chat request, for errors about them. */
  names: Readonly<Record<string, string>>;
  /** Returns the answer of this API. */
  whole(completion: ChatCompletion): object;
  /** Yields the events of this API. */
  events(chunks: AsyncIterable<ChatCompletionChunk>): AsyncGenerator<NamedEvent, undefined>;
}

/** Returns an error about the chat request as one about the request from which it was translated. */
export function inNamesOf({ names }: Pick<Translated, 'names'>, error: unknown): unknown {
  if (!(error instanceof ApiError) || error.param === null) return error;
  const [first] = error.param.split(/[.[]/);
  const name = Object.hasOwn(names, first) ? names[first] : first;
  if (name === first) return error;
  const { message, status, code, param } = error;
  const renamed = message.startsWith(param) ? name + message.slice(first.length) : message;
  return new ApiError(renamed, { status, code, param: name + param.slice(first.length) });
}

/** Schema of a value that is not served, for the given reason. */
export const unserved = (why: string) => v.nullish(v.custom<null>(() => false, `nothing, because ${why}`));

/** Returns an assistant's message of a chat request. */
export const replyMessage = (content: string, calls: readonly ToolCallShape[] = []) => ({
  role: 'assistant' as const,
  content,
  ...(calls.length > 0 && { tool_calls: [...calls] }),
});

/** Returns a tool call of a chat request. */
export const callMessage = (id: string, name: string, args: string): ToolCallShape => {
  return { id, type: 'function', function: { name, arguments: args } };
};

/** A part of a streamed reply: its head, a piece of text, a complete call, or the end. */
type Piece =
  | { head: Pick<ChatCompletionChunk, 'id' | 'model' | 'created'> }
  | { text: string }
  | { call: ToolCallShape }
  | {
      end: { finish: FinishReason; stop: string | undefined; logprobs: Logprobs['content'] | undefined; usage: Usage };
    };

/** Yields the parts of a chat stream: the head first, the end last. */
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
