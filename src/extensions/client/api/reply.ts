/** Converts the model's tokens to a completion in OpenAI's shape, complete or in chunks. */

import type { ChatTokenizer } from '../../../model/tokenizer/chat.ts';
import { turnText } from '../../../rollout/agent/turnText.ts';
import { parsedBy, type ToolParser } from '../../../rollout/tools/parser.ts';
import type { Generation } from '../../../rollout/types.ts';
import type { CalledTool } from './messages.ts';
import type { CallRequest } from './request.ts';
import type {
  ChatCompletion,
  ChatCompletionChunk,
  ChunkDelta,
  FinishReason,
  Logprobs,
  TokenLogprob,
  ToolCallShape,
  Usage,
} from './shapes.ts';

export interface ReadReply {
  /** The reply's text without its calls. */
  content: string;
  calls: CalledTool[];
  finishReason: FinishReason;
  /** Number of calls that could not be parsed. If there are any, the text keeps all calls. */
  unreadable: number;
}

/** One answered call. */
export interface Answer {
  generation: Generation;
  reply: ReadReply;
  /** All context tokens before the reply. */
  contextIds: Uint32Array;
}

/** Returns the index in the text at which its calls start. For formats that mark calls with control tokens, no text marks a start. */
export function callsStart(text: string, { callFormat }: ToolParser): number {
  const at = text.indexOf('<tool_call>');
  if (callFormat === 'llama3_json' || callFormat === undefined) return 0;
  return at < 0 ? text.length : at;
}

/** Parses the calls of a reply. If one cannot be parsed, the full text is kept as the model wrote it. */
export function readReply(
  tokenizer: ChatTokenizer,
  { tokenIds, stopReason, stopString }: Generation,
  { parse, oneCall, tools, sampling: { includeStopStrInOutput: includeStop } }: CallRequest,
  parser: ToolParser,
): ReadReply {
  const turn = { tokenIds: withoutEnd(tokenIds, stopReason), ...(stopString !== undefined && { stopString }) };
  const named = tools.length > 0 && parser.stopToken !== undefined;
  const text = turnText(tokenizer, turn, { named, includeStop });
  const cut = stopReason === 'length' ? ('length' as const) : ('stop' as const);
  const all = parse && cut !== 'length' ? parsedBy(parser, text, tools) : [];
  const found = oneCall ? all.slice(0, 1) : all;
  const calls = found.flatMap((call): CalledTool[] => {
    if (call.error !== undefined) return [];
    return [{ id: call.id ?? `call_${randomId()}`, name: call.name, arguments: JSON.stringify(call.args) }];
  });
  const unreadable = found.length - calls.length;
  if (calls.length === 0 || unreadable > 0) return { content: text, calls: [], finishReason: cut, unreadable };
  return { content: text.slice(0, callsStart(text, parser)).trimEnd(), calls, finishReason: 'tool_calls', unreadable };
}

/** Returns the tokens without the one that ended the turn. */
const withoutEnd = (tokenIds: Uint32Array, stopReason: Generation['stopReason']): Uint32Array =>
  stopReason === 'stop' ? tokenIds.subarray(0, -1) : tokenIds;

/** 24 hexadecimal digits. */
export const randomId = (): string => crypto.randomUUID().replaceAll('-', '').slice(0, 24);

/** Converts a parsed call to OpenAI's shape. */
export const callShape = ({ id, name, arguments: args }: CalledTool): ToolCallShape => {
  return { id, type: 'function', function: { name, arguments: args } };
};

/** Fields with which every object of a completion starts. */
export type Head = Pick<ChatCompletion, 'id' | 'created' | 'model' | 'system_fingerprint'>;

/** Returns a complete completion with a choice for each answer. */
export function completionOf(
  head: Head,
  tokenizer: ChatTokenizer,
  request: CallRequest,
  ...answers: [Answer, ...Answer[]]
): ChatCompletion {
  return {
    ...head,
    object: 'chat.completion',
    choices: answers.map((answer, index) => choiceOf(index, tokenizer, request, answer)),
    usage: usageOf(...answers),
    ...(request.returnTokenIds && { prompt_token_ids: [...answers[0].contextIds] }),
  };
}

function choiceOf(index: number, tokenizer: ChatTokenizer, request: CallRequest, { reply, generation }: Answer) {
  const { content, calls, finishReason } = reply;
  const message = {
    role: 'assistant' as const,
    content: content === '' && calls.length > 0 ? null : content,
    refusal: null,
    ...(calls.length > 0 && { tool_calls: calls.map(callShape) }),
  };
  const logprobs = logprobsOf(tokenizer, request, generation);
  const ids = request.returnTokenIds && { token_ids: [...generation.tokenIds] };
  return { index, message, logprobs, finish_reason: finishReason, ...stopOf(generation.stopString), ...ids };
}

const stopOf = (stopString: string | undefined) => (stopString === undefined ? {} : { stop_reason: stopString });

/** Returns the token counts of a call, whose answers have one context. */
export function usageOf(...answers: [Answer, ...Answer[]]): Usage {
  const prompt = answers[0].contextIds.length;
  const completion = answers.reduce((sum, { generation }) => sum + generation.tokenIds.length, 0);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/** Returns one chunk of a streamed completion. */
export function chunkOf(
  head: Head,
  delta: ChunkDelta,
  options: {
    finishReason?: FinishReason | null;
    logprobs?: Logprobs | null;
    stopString?: string | undefined;
    index?: number;
  } = {},
): ChatCompletionChunk {
  const { finishReason = null, logprobs, stopString, index = 0 } = options;
  const choice = { index, delta, finish_reason: finishReason, ...(logprobs && { logprobs }), ...stopOf(stopString) };
  return { ...head, object: 'chat.completion.chunk', choices: [choice] };
}

/** Returns the log-probs of the sampled tokens without the end token; null if the request does not ask for log-probs. */
export function logprobsOf(
  tokenizer: ChatTokenizer,
  { logprobs }: CallRequest,
  generation: Generation,
): Logprobs | null {
  if (!logprobs) return null;
  const { tokenIds, logProbs, alternatives, stopReason } = generation;
  const one = (id: number, logprob: number): TokenLogprob => {
    const token = tokenizer.decode([id]);
    return { token, logprob, bytes: token.includes('\uFFFD') ? null : [...new TextEncoder().encode(token)] };
  };
  const content = [...withoutEnd(tokenIds, stopReason)].map((id, i) => ({
    ...one(id, logProbs[i]),
    top_logprobs: (alternatives?.[i] ?? []).map(({ tokenId, logProb }) => one(tokenId, logProb)),
  }));
  return { content, refusal: null };
}
