/** Reads the parameters of `chat.completions.create`: what is served, and one clear error for all else. */

import type { Tool } from '../../../tasks/tool.ts';
import { isObject } from '../../../tasks/toolSchema.ts';
import type { SamplingParams } from '../../../rollout/types.ts';
import { ApiError, refuse, shown } from './apiError.ts';
import { type ChatMessage, readMessages, readTools } from './messages.ts';

/** What of a run its requests are read against. */
export interface ServedModel {
  /** What requests may name as their model. */
  name: string;
  temperature: number;
  vocabSize: number;
  /** End tokens, which stop every reply. */
  eosTokens: number;
}

export interface CallRequest {
  messages: ChatMessage[];
  tools: Tool[];
  /** False: tool_choice none, calls are text. */
  parse: boolean;
  stream: boolean;
  includeUsage: boolean;
  logprobs: boolean;
  returnTokenIds: boolean;
  /** Replaces the random key of the episode: equal seed, context and weights draw equal tokens. */
  seed: number | undefined;
  /** What the request asks of the sampler beside the run's own settings; `maxNewTokens` only where it is given. */
  sampling: Partial<SamplingParams>;
  metadata: Readonly<Record<string, string>>;
  user: string | undefined;
}

/** Undefined if the value is allowed, else what is, in words. */
type Rule = (value: unknown) => string | undefined;

const between =
  (low: number, high: number): Rule =>
  (value) =>
    typeof value === 'number' && value >= low && value <= high ? undefined : `a number from ${low} to ${high}`;
const whole =
  (low: number, high: number): Rule =>
  (value) =>
    Number.isInteger(value) && (value as number) >= low && (value as number) <= high
      ? undefined
      : `a whole number from ${low} to ${high}`;
const flag: Rule = (value) => (typeof value === 'boolean' ? undefined : 'true or false');
const text: Rule = (value) =>
  typeof value === 'string' && value.length <= 512 ? undefined : 'a text of at most 512 characters';
const listOf =
  (what: string, most: number, isOne: (value: unknown) => boolean): Rule =>
  (value) =>
    Array.isArray(value) && value.length <= most && value.every(isOne)
      ? undefined
      : `a list of at most ${most} ${what}`;
const isStop = (value: unknown) => typeof value === 'string' && value !== '';
const stopRule: Rule = (value) =>
  isStop(value) || listOf('', MAX_STOPS, isStop)(value) === undefined
    ? undefined
    : `a text, or a list of at most ${MAX_STOPS}, none of them empty`;
const texts: Rule = (value) =>
  isObject(value) && Object.keys(value).length <= 16 && Object.values(value).every((v) => text(v) === undefined)
    ? undefined
    : 'at most 16 texts by name';
const only =
  (allowed: readonly unknown[], why: string): Rule =>
  (value) =>
    allowed.includes(value) ? undefined : `${allowed.map(shown).join(', ')}; ${why}`;

const MAX_STOPS = 16;
/** What the sampler returns at a place. */
const MAX_TOP_LOGPROBS = 8;
const MAX_TOKENS = 2 ** 31 - 1;

/** Every parameter but `messages` and `tools`, and what is allowed for it. */
const RULES: Record<string, Rule> = {
  model: text,
  stream: flag,
  logprobs: flag,
  top_logprobs: whole(0, MAX_TOP_LOGPROBS),
  temperature: between(0, 2),
  top_p: (value) => (value === 0 ? 'a number above 0, to 1' : between(0, 1)(value)),
  max_tokens: whole(1, MAX_TOKENS),
  max_completion_tokens: whole(1, MAX_TOKENS),
  stop: stopRule,
  seed: whole(-Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
  presence_penalty: between(-2, 2),
  frequency_penalty: between(-2, 2),
  user: text,
  metadata: texts,
  top_k: whole(-1, MAX_TOKENS),
  min_p: between(0, 1),
  repetition_penalty: (value) => (value === 0 ? 'a number above 0' : between(0, 100)(value)),
  min_tokens: whole(0, MAX_TOKENS),
  include_stop_str_in_output: flag,
  return_token_ids: flag,
  // Served in one way alone: anything else would have to be ignored.
  n: only([1], 'a trajectory has one reply at a time: make a client for each sample'),
  tool_choice: only(['auto', 'none'], 'a reply is drawn freely, so no call can be forced'),
  parallel_tool_calls: only([true], 'the model decides how many calls it makes'),
  response_format: (value) =>
    isObject(value) && value['type'] === 'text'
      ? undefined
      : '{ type: "text" }; JSON is constrained in tool calls alone',
  modalities: (value) => (String(value) === 'text' ? undefined : '["text"]'),
  store: only([false], 'completions are kept for training alone'),
  service_tier: only(['auto', 'default'], 'there is one'),
};

/** Read by functions of their own. */
const OTHERS = ['messages', 'tools', 'stream_options', 'logit_bias', 'stop_token_ids'];

/** Throws ApiError that names the first parameter that is wrong, unknown or not served. */
export function readRequest(body: unknown, model: ServedModel): CallRequest {
  if (!isObject(body)) throw new ApiError(`The body is ${shown(body)}; give a JSON object with "messages".`);
  const given: Record<string, unknown> = Object.fromEntries(
    Object.entries(body).filter(([, value]) => value !== null && value !== undefined),
  );
  for (const [key, value] of Object.entries(given)) {
    if (OTHERS.includes(key)) continue;
    if (!Object.hasOwn(RULES, key))
      throw refuse(
        key.slice(0, 64),
        `${shown(key)} is not served; known are ${[...OTHERS, ...Object.keys(RULES)].join(', ')}.`,
      );
    const expected = RULES[key](value);
    if (expected !== undefined) throw refuse(key, `${key} is ${shown(value)}; allowed: ${expected}.`);
  }
  checkModel(given, model);
  const tools = readTools(given['tools']);
  return {
    messages: readMessages(given['messages']),
    tools,
    parse: tools.length > 0 && given['tool_choice'] !== 'none',
    stream: given['stream'] === true,
    includeUsage: readStreamOptions(given),
    logprobs: readLogprobs(given),
    returnTokenIds: given['return_token_ids'] === true,
    seed: given['seed'] as number | undefined,
    sampling: readSampling(given, model),
    metadata: (given['metadata'] ?? {}) as Record<string, string>,
    user: given['user'] as string | undefined,
  };
}

function checkModel({ model: asked, temperature }: Record<string, unknown>, { name, ...run }: ServedModel): void {
  if (asked !== undefined && asked !== name)
    throw new ApiError(`There is no model ${shown(asked)}; this run serves "${name}".`, {
      status: 404,
      param: 'model',
      code: 'model_not_found',
    });
  if (temperature !== undefined && temperature !== run.temperature)
    throw refuse(
      'temperature',
      `temperature is ${shown(temperature)}, but the run samples and trains at ${run.temperature} (rollout.temperature), which ` +
        'divides every logit of the loss; leave it out, or set that key.',
    );
}

function readStreamOptions({ stream, stream_options: options }: Record<string, unknown>): boolean {
  if (options === undefined) return false;
  const { include_usage: includeUsage = false, ...rest } = isObject(options) ? options : { none: 0 };
  if (stream === true && Object.keys(rest).length === 0 && typeof includeUsage === 'boolean') return includeUsage;
  throw refuse(
    'stream_options',
    'stream_options is for stream: true alone, and may have include_usage: true or false.',
  );
}

function readLogprobs({ logprobs = false, top_logprobs: top = 0 }: Record<string, unknown>): boolean {
  if (top !== 0 && logprobs !== true) throw refuse('top_logprobs', 'top_logprobs needs logprobs: true.');
  return logprobs === true;
}

function readSampling(given: Record<string, unknown>, { vocabSize, eosTokens }: ServedModel): Partial<SamplingParams> {
  const sampling: Partial<SamplingParams> = {};
  const set = <K extends keyof SamplingParams>(key: K, value: unknown) => {
    if (value !== undefined) sampling[key] = value as SamplingParams[K];
  };
  const { stop, top_k: topK } = given;
  set('maxNewTokens', given['max_completion_tokens'] ?? given['max_tokens']);
  set('topP', given['top_p']);
  set('topK', topK === -1 ? 0 : topK); // vLLM's -1 = off
  set('minP', given['min_p']);
  set('repetitionPenalty', given['repetition_penalty']);
  set('presencePenalty', given['presence_penalty']);
  set('frequencyPenalty', given['frequency_penalty']);
  set('minNewTokens', given['min_tokens']);
  set('stop', typeof stop === 'string' ? [stop] : stop);
  set('includeStopStrInOutput', given['include_stop_str_in_output']);
  set('logitBias', readBias(given['logit_bias'], vocabSize));
  set('topLogprobs', given['top_logprobs']);
  set('stopTokenIds', readStopTokens(given['stop_token_ids'], vocabSize, 4 - eosTokens));
  return sampling;
}

function readBias(bias: unknown, vocabSize: number): [number, number][] | undefined {
  if (bias === undefined) return undefined;
  const entries = isObject(bias) ? Object.entries(bias).map(([id, value]) => [Number(id), value] as const) : [];
  const isOne = ([id, value]: readonly [number, unknown]) =>
    whole(0, vocabSize - 1)(id) === undefined && between(-100, 100)(value) === undefined;
  if (isObject(bias) && entries.length <= 64 && entries.every(isOne)) return entries as [number, number][];
  throw refuse(
    'logit_bias',
    `logit_bias must be at most 64 numbers from -100 to 100, by token ids from 0 to ${vocabSize - 1}.`,
  );
}

function readStopTokens(ids: unknown, vocabSize: number, most: number): number[] | undefined {
  if (ids === undefined) return undefined;
  const expected = listOf('token ids', most, (id) => whole(0, vocabSize - 1)(id) === undefined)(ids);
  if (expected === undefined) return ids as number[];
  throw refuse('stop_token_ids', `stop_token_ids is ${shown(ids)}; allowed: ${expected}, from 0 to ${vocabSize - 1}.`);
}
