/**
 * The client for the calls of one episode: `chat.completions.create` as in the `openai` package, served by the engine that is being
 * trained.
 */

import {
  type Head,
  chunkOf,
  callShape,
  completionOf,
  logprobsOf,
  namesControl,
  randomId,
  usageOf,
} from './api/reply.ts';
import { readRequest, type CallRequest } from './api/request.ts';
import type { ChatCompletion, ChatCompletionChunk, CompletionParams } from './api/shapes.ts';
import { Channel, shownText } from './api/streaming.ts';
import type { ClientGroups } from './groups.ts';
import type { ClientTrajectory, TrajectoryOptions } from './trajectory.ts';

interface RequestOptions {
  /** Cancels the call and drops its tokens. The episode stays open for further calls. */
  signal?: AbortSignal | undefined;
}

/** Same methods as `client.chat.completions` of the `openai` package. */
export interface ChatCompletions {
  /** Streams chunks while the model samples. If the reader stops early, the call is cancelled. Throws ApiError. */
  create(
    params: CompletionParams & { stream: true },
    options?: RequestOptions,
  ): Promise<AsyncIterableIterator<ChatCompletionChunk>>;
  /** Returns one complete chat completion. Throws ApiError if the request is refused, and rethrows errors of the engine. */
  create(params: CompletionParams & { stream?: false | null }, options?: RequestOptions): Promise<ChatCompletion>;
}

/** Makes the model calls of one episode. After the last call, set the reward by `trajectory.reward`. */
export class TrainingClient {
  /** The episode with its tokens. Its `reward` method takes the reward. */
  readonly trajectory: ClientTrajectory;
  /** Has the method `completions.create`, as `chat` of a client of the `openai` package. */
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

/** Runs one call and returns the complete chat completion. */
export async function completed(
  groups: ClientGroups,
  trajectory: ClientTrajectory,
  request: CallRequest,
  signal?: AbortSignal,
): Promise<ChatCompletion> {
  const [first, ...others] = await trajectory.choices(request, { signal });
  return completionOf(headOf(groups, trajectory), groups.template.tokenizer, request, first, ...others);
}

/**
 * Runs one call and returns its chunks. Resolves when the first token is sampled. If the call fails before that, rejects like `completed`,
 * so that a refused request gets an HTTP error instead of a stream.
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
  const { template } = groups;
  const { tokenizer, toolParser } = template;
  const { stop = [] } = request.sampling;
  const stopIds = template.stopTokenIds(request);
  const skipSpecialTokens = !namesControl(request.tools, toolParser);
  const replies = Array.from({ length: request.n ?? 1 }, () => ({ drawn: [] as number[], shown: '' }));
  const show = (text: string, index: number) => {
    const { shown } = replies[index];
    if (text === shown || !text.startsWith(shown)) return; // the rest is held back until a later token
    channel.push(chunkOf(head, { content: text.slice(shown.length) }, { index }));
    replies[index].shown = text;
  };
  for (const index of replies.keys()) channel.push(chunkOf(head, { role: 'assistant', content: '' }, { index }));
  await new Promise<void>((begun, refused) => {
    let isOver = false;
    const onTokens = (ids: readonly number[], index: number) => {
      if (isOver) return; // from a worker, the last token event can arrive after the result
      const { drawn } = replies[index];
      drawn.push(...ids.filter((id) => !stopIds.includes(id)));
      const text = tokenizer.decode(drawn, { skipSpecialTokens });
      show(shownText(text, stop, request.parse ? toolParser : undefined), index);
      begun();
    };
    const until = signal ? AbortSignal.any([signal, left.signal]) : left.signal;
    trajectory.choices(request, { signal: until, onTokens }).then(
      (answers) => {
        isOver = true;
        for (const [index, { reply, generation, contextIds }] of answers.entries()) {
          const { content, calls, finishReason } = reply;
          show(content, index);
          for (const [at, call] of calls.entries())
            channel.push(chunkOf(head, { tool_calls: [{ index: at, ...callShape(call) }] }, { index }));
          const logprobs = logprobsOf(tokenizer, request, generation);
          const last = chunkOf(head, {}, { finishReason, logprobs, index, stopString: generation.stopString });
          if (request.returnTokenIds) {
            last.choices[0].token_ids = [...generation.tokenIds];
            last.prompt_token_ids = [...contextIds];
          }
          channel.push(last);
        }
        if (request.includeUsage) channel.push({ ...chunkOf(head, {}), choices: [], usage: usageOf(...answers) });
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
