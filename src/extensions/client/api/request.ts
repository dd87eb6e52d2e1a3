/** Reads the parameters of `chat.completions.create`. A parameter that is not served ends in an error that says so. */

import * as v from 'valibot';
import type { Tool } from '../../../tasks/tool.ts';
import { isObject } from '../../../tasks/toolSchema.ts';
import type { SamplingParams } from '../../../rollout/types.ts';
import { ApiError, refuse } from './apiError.ts';
import { type ChatMessage, messagesSchema, toolsSchema } from './messages.ts';
import { between, readBody, recordOf, text, whole } from './read.ts';

/** Properties of a run that its requests are validated against. */
export interface ServedModel {
  /** The model name that requests can give. */
  name: string;
  temperature: number;
  vocabSize: number;
  /** Number of end tokens; each of them stops every reply. */
  eosTokens: number;
}

export interface CallRequest {
  messages: ChatMessage[];
  tools: Tool[];
  /** Key of the tools: equal for equal tools. */
  toolsKey: string;
  /** False for tool_choice: none. Calls in the reply then stay text. */
  parse: boolean;
  stream: boolean;
  includeUsage: boolean;
  logprobs: boolean;
  returnTokenIds: boolean;
  /** Replaces the random key of the episode. Equal seed, context and weights sample equal tokens. */
  seed: number | undefined;
  /** Sampling parameters of the request, which override the run's. `maxNewTokens` is set only if the request sets it. */
  sampling: Partial<SamplingParams>;
  metadata: Readonly<Record<string, string>>;
  user: string | undefined;
}

const MAX_TOKENS = 2 ** 31 - 1;
const MAX_STOPS = 16;
/** Maximum number of alternatives that the sampler returns per token. */
const MAX_TOP_LOGPROBS = 8;

const flag = v.boolean('true or false');
const nonEmpty = (words: string) => v.pipe(v.string(words), v.minLength(1, words));
const only = (allowed: readonly (string | number)[], why: string) =>
  v.picklist(allowed, `${allowed.map((one) => JSON.stringify(one)).join(', ')}; ${why}`);

const STOP = `a text, or a list of at most ${MAX_STOPS}, none of them empty`;
const stop = v.pipe(
  v.union([nonEmpty(STOP), v.pipe(v.array(nonEmpty(STOP)), v.maxLength(MAX_STOPS, STOP))], STOP),
  v.transform((given) => (typeof given === 'string' ? [given] : given)),
);

const OPTIONS = '{ include_usage: true or false }';
const FORMAT = '{ type: "text" }; JSON is constrained only in tool calls';

/** Returns the schemas of every parameter except `messages` and `tools`. */
function parameters(vocabSize: number, mostStops: number) {
  const tokenId = whole(0, vocabSize - 1);
  const bias = `an object of at most 64 numbers from -100 to 100, by token ids from 0 to ${vocabSize - 1}`;
  const biasKey = v.pipe(v.string(), v.transform(Number), tokenId);
  const stopIds = `a list of at most ${mostStops} token ids, from 0 to ${vocabSize - 1}`;
  return v.partial(
    v.object({
      stream_options: recordOf<boolean | undefined>(
        v.tuple([v.literal('include_usage'), v.optional(flag)]),
        1,
        OPTIONS,
      ),
      logit_bias: v.pipe(
        recordOf(v.tuple([biasKey, between(-100, 100)]), 64, bias),
        v.transform((given) => Object.entries(given).map(([id, value]): [number, number] => [Number(id), value])),
      ),
      stop_token_ids: v.pipe(v.array(tokenId, stopIds), v.maxLength(mostStops, stopIds)),
      model: text(),
      stream: flag,
      logprobs: flag,
      top_logprobs: whole(0, MAX_TOP_LOGPROBS),
      temperature: between(0, 2),
      top_p: between(Number.MIN_VALUE, 1, 'a number above 0, to 1'),
      max_tokens: whole(1, MAX_TOKENS),
      max_completion_tokens: whole(1, MAX_TOKENS),
      stop,
      seed: whole(-Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
      presence_penalty: between(-2, 2),
      frequency_penalty: between(-2, 2),
      user: text(),
      metadata: recordOf(v.tuple([v.unknown(), text()]), 16, 'at most 16 texts of at most 512 characters by name'),
      top_k: whole(-1, MAX_TOKENS),
      min_p: between(0, 1),
      repetition_penalty: between(Number.MIN_VALUE, 100, 'a number above 0, to 100'),
      min_tokens: whole(0, MAX_TOKENS),
      include_stop_str_in_output: flag,
      return_token_ids: flag,
      // Only one value of each is served. Any other would have to be ignored.
      n: only([1], 'a trajectory has one reply at a time: make a client for each sample'),
      tool_choice: only(['auto', 'none'], 'a reply is sampled freely, so no call can be forced'),
      parallel_tool_calls: v.literal(true, 'true; the model decides how many calls it makes'),
      response_format: v.object({ type: v.literal('text', FORMAT) }, FORMAT),
      modalities: v.custom((given) => ['"text"', '["text"]'].includes(JSON.stringify(given)), '["text"]'),
      store: v.literal(false, 'false; completions are stored only for training'),
      service_tier: only(['auto', 'default'], 'there is one'),
    }),
  ).entries;
}

/** Returns the request. Throws ApiError that names the first parameter that is wrong, unknown or not served. */
export function readRequest(body: unknown, model: ServedModel): CallRequest {
  const { vocabSize, eosTokens } = model;
  const entries = {
    messages: messagesSchema,
    tools: v.optional(toolsSchema, []),
    ...parameters(vocabSize, 4 - eosTokens),
  };
  const given = readBody(entries, isObject(body) ? withoutNull(body) : body);
  checkModel(given, model);
  const { messages, tools, stream = false, stream_options: options, logprobs = false, top_logprobs: top = 0 } = given;
  if (options && !stream) throw refuse('stream_options', 'stream_options needs stream: true.');
  if (top !== 0 && !logprobs) throw refuse('top_logprobs', 'top_logprobs needs logprobs: true.');
  return {
    messages,
    tools,
    toolsKey: JSON.stringify(tools.map(({ name, description, parameters: schema }) => [name, description, schema])),
    parse: tools.length > 0 && given.tool_choice !== 'none',
    stream,
    includeUsage: options?.['include_usage'] ?? false,
    logprobs,
    returnTokenIds: given.return_token_ids ?? false,
    seed: given.seed,
    sampling: withoutNull({
      maxNewTokens: given.max_completion_tokens ?? given.max_tokens,
      topP: given.top_p,
      topK: given.top_k === -1 ? 0 : given.top_k, // in vLLM, -1 means off
      minP: given.min_p,
      repetitionPenalty: given.repetition_penalty,
      presencePenalty: given.presence_penalty,
      frequencyPenalty: given.frequency_penalty,
      minNewTokens: given.min_tokens,
      stop: given.stop,
      includeStopStrInOutput: given.include_stop_str_in_output,
      logitBias: given.logit_bias,
      topLogprobs: given.top_logprobs,
      stopTokenIds: given.stop_token_ids,
    }),
    metadata: given.metadata ?? {},
    user: given.user,
  };
}

/** Returns the object without null and undefined values, which count as absent. */
const withoutNull = <T extends object>(given: T) =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null && value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };

function checkModel(
  { model: asked, temperature }: { model?: string | undefined; temperature?: number | undefined },
  { name, ...run }: ServedModel,
): void {
  if (asked !== undefined && asked !== name)
    throw new ApiError(`There is no model ${JSON.stringify(asked)}. This run serves "${name}".`, {
      status: 404,
      param: 'model',
      code: 'model_not_found',
    });
  if (temperature !== undefined && temperature !== run.temperature)
    throw refuse(
      'temperature',
      `temperature is ${temperature}, but the run samples and trains at ${run.temperature} (rollout.temperature), which ` +
        'divides every logit of the loss. Leave it out, or set that key.',
    );
}
