/** One episode's client: `chat.completions.create` in the shape of the `openai` package, over the engine that trains. */

import { type Head, chunkOf, callShape, completionOf, logprobsOf, randomId, usageOf } from './api/reply.ts';
import { readRequest, type CallRequest } from './api/request.ts';
import type { ChatCompletion, ChatCompletionChunk, CompletionParams } from './api/shapes.ts';
import { Channel, shownText } from './api/streaming.ts';
import type { ClientGroups } from './groups.ts';
import type { ClientTrajectory, TrajectoryOptions } from './trajectory.ts';

interface RequestOptions {
  /** Ends the call: its tokens are dropped, and the episode may continue, with the same call again or another. */
  signal?: AbortSignal | undefined;
}

/** Like `client.chat.completions` of the `openai` package. */
export interface ChatCompletions {
  /** The chunks as the model draws; to stop reading them ends the call. Throws ApiError. */
  create(
    params: CompletionParams & { stream: true },
    options?: RequestOptions,
  ): Promise<AsyncIterableIterator<ChatCompletionChunk>>;
  /** One completion. Throws ApiError for a request that is refused, and what the engine throws. */
  create(params: CompletionParams & { stream?: false | null }, options?: RequestOptions): Promise<ChatCompletion>;
}

/** Makes the calls of one episode; its trajectory takes the reward. */
export class TrainingClient {
  /** The episode, with its reward. */
  readonly trajectory: ClientTrajectory;
  /** Same shape as in the `openai` package. */
  readonly chat: { completions: ChatCompletions };

  constructor(groups: ClientGroups, options: TrajectoryOptions = {}) {
    this.trajectory = groups.open(options);
    const create = async (params: CompletionParams, { signal }: RequestOptions = {}) => {
      const request = readRequest(params, groups.served);
      return request.stream
        ? streamed(groups, this.trajectory, request, signal)
        : completed(groups, this.trajectory, request, signal);
    };
    this.chat = { completions: { create: create as ChatCompletions['create'] } };
  }
}

/** One call, answered at once. */
export async function completed(
  groups: ClientGroups,
  trajectory: ClientTrajectory,
  request: CallRequest,
  signal?: AbortSignal,
): Promise<ChatCompletion> {
  const answer = await trajectory.call(request, { signal });
  return completionOf(headOf(groups, trajectory), groups.tokenizer, request, answer);
}

/**
 * One call, answered in chunks. Resolves with the first token, or rejects as `completed` does where there is none, so that a
 * refusal is no stream.
 */
export async function streamed(
  groups: ClientGroups,
  trajectory: ClientTrajectory,
  request: CallRequest,
  signal?: AbortSignal,
): Promise<AsyncGenerator<ChatCompletionChunk, undefined>> {
  const head = headOf(groups, trajectory);
  const left = new AbortController();
  const channel = new Channel<ChatCompletionChunk>();
  const { tokenizer, toolParser } = groups;
  const { stop = [], stopTokenIds = [] } = request.sampling;
  const stopIds = [...tokenizer.eosTokenIds, ...stopTokenIds];
  const drawn: number[] = [];
  let shown = '';
  const show = (text: string) => {
    if (text === shown || !text.startsWith(shown)) return; // held back: the rest comes with a later token
    channel.push(chunkOf(head, { content: text.slice(shown.length) }));
    shown = text;
  };
  channel.push(chunkOf(head, { role: 'assistant', content: '' }));
  await new Promise<void>((begun, refused) => {
    let isOver = false;
    const onTokens = (ids: readonly number[]) => {
      if (isOver) return; // from a worker the last may come late
      drawn.push(...ids.filter((id) => !stopIds.includes(id)));
      const text = tokenizer.decode(drawn, { skipSpecialTokens: true });
      show(shownText(text, stop, request.parse ? toolParser : undefined));
      begun();
    };
    trajectory.call(request, { signal: signal ? AbortSignal.any([signal, left.signal]) : left.signal, onTokens }).then(
      (answer) => {
        isOver = true;
        const { content, calls, finishReason } = answer.reply;
        show(content);
        calls.forEach((call, index) => channel.push(chunkOf(head, { tool_calls: [{ index, ...callShape(call) }] })));
        const logprobs = logprobsOf(tokenizer, request, answer.generation);
        channel.push(chunkOf(head, {}, { finishReason, logprobs }));
        if (request.includeUsage) channel.push({ ...chunkOf(head, {}), choices: [], usage: usageOf(answer) });
        channel.end();
        begun();
      },
      (error: unknown) => {
        channel.end({ error });
        refused(error instanceof Error ? error : new Error(String(error)));
      },
    );
  });
  return channel.read(() => left.abort());
}

function headOf(groups: ClientGroups, trajectory: ClientTrajectory): Head {
  return {
    id: `chatcmpl-${trajectory.id}-${randomId().slice(0, 8)}`,
    created: Math.floor(Date.now() / 1000),
    model: groups.served.name,
    system_fingerprint: `step-${groups.version}`,
  };
}
