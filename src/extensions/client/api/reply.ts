/** Converts the tokens of a reply to a chat completion of OpenAI's API, complete or in chunks. */

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
  /** Text of the reply without its tool calls. */
  content: string;
  calls: CalledTool[];
  finishReason: FinishReason;
  /** Number of tool calls that could not be parsed. If there are any, `content` keeps the text of all calls. */
  unreadable: number;
}

/** One reply of the model to a request. */
export interface Answer {
  generation: Generation;
  reply: ReadReply;
  /** All tokens before the reply: the model's input. */
  contextIds: Uint32Array;
}

/**
 * Returns the index at which tool calls start in a reply's text. Returns 0 for formats without a start tag in the text, where the whole
 * text can be a call.
 */
export function callsStart(text: string, { callFormat }: ToolParser): number {
  const at = text.indexOf('<tool_call>');
  if (callFormat === 'llama3_json' || callFormat === undefined) return 0;
  return at < 0 ? text.length : at;
}

/** Parses the tool calls of a reply. If one cannot be parsed, the reply keeps its full text and has no calls. */
export function readReply(
  tokenizer: ChatTokenizer,
  { tokenIds, stopReason, stopString }: Generation,
  { parse, oneCall, tools, sampling: { includeStopStrInOutput: includeStop } }: CallRequest,
  parser: ToolParser,
): ReadReply {
  const turn = { tokenIds: withoutEnd(tokenIds, stopReason), ...(stopString !== undefined && { stopString }) };
  const named = namesControl(tools, parser);
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

/** True if replies keep the names of control tokens, with which the format writes its calls. */
export const namesControl = (tools: CallRequest['tools'], { stopToken }: ToolParser): boolean =>
  tools.length > 0 && stopToken !== undefined;

/** Returns the tokens without the end token. */
const withoutEnd = (tokenIds: Uint32Array, stopReason: Generation['stopReason']): Uint32Array =>
  stopReason === 'stop' ? tokenIds.subarray(0, -1) : tokenIds;

/** Returns a random id of 24 hexadecimal digits. */
export const randomId = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');

/** Converts a parsed tool call to the form of OpenAI's API. */
export const callShape = ({ id, name, arguments: args }: CalledTool): ToolCallShape => {
  return { id, type: 'function', function: { name, arguments: args } };
};

/** Fields that a completion and all of its chunks have in common. */
export type Head = Pick<ChatCompletion, 'id' | 'created' | 'model' | 'system_fingerprint'>;

/** Returns a complete chat completion with one choice per answer. */
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

/** Returns the token counts of a request. All of its answers have the same context, which is counted once. */
export function usageOf(...answers: [Answer, ...Answer[]]): Usage {
  const prompt = answers[0].contextIds.length;
  const completion = answers.reduce((sum, { generation }) => sum + generation.tokenIds.length, 0);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/** Returns one chunk of a streamed chat completion. */
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

/** Returns the log-prob of each sampled token except the end token; null if the request does not ask for log-probs. */
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
