/**
 * Validates the parameters of a `chat.completions.create` request. `parameters` has the fields that are served; fields.ts decides about all
 * others.
 */

import * as v from 'valibot';
import type { Tool } from '../../../tasks/tool.ts';
import { type ArgumentSchema, isObject } from '../../../tasks/toolSchema.ts';
import type { SamplingParams } from '../../../rollout/types.ts';
import { ApiError, refuse } from './apiError.ts';
import { HINTS, REFUSED, ignoredFields } from './fields.ts';
import { readSchema } from './jsonSchema.ts';
import { type ChatMessage, messagesSchema, toolsSchema } from './messages.ts';
import { between, readBody, recordOf, text, whole } from './read.ts';
import { nameIn, type Translated } from './translated.ts';

/** The run's properties against which requests are validated. */
export interface ServedModel {
  /** Name of the run, which is the model's name for clients. */
  name: string;
  temperature: number;
  vocabSize: number;
  /** Number of end tokens of the model. Each counts towards the maximum of 4 stop tokens of a request. */
  eosTokens: number;
  /** The run's stop strings, which a request's own replace. */
  stop?: Pick<SamplingParams, 'stop' | 'includeStopStrInOutput'>;
  /** True to refuse requests that contain hints (fields without effect). */
  strict?: boolean;
}

export interface CallRequest {
  messages: ChatMessage[];
  tools: Tool[];
  /** Text that is equal for two requests with the same tools. */
  toolsKey: string;
  /** True if tool calls in the reply are parsed. False without tools and for tool_choice "none": calls then stay in the text. */
  parse: boolean;
  /** Tools of which the reply must call one, if tool_choice forces a call. */
  required?: Tool[] | undefined;
  /** True if parallel_tool_calls is false: only the first call of a reply is returned. */
  oneCall?: boolean;
  /** JSON schema of the reply, from a response_format other than "text". */
  jsonSchema?: ArgumentSchema | undefined;
  /** Number of replies. Each becomes a separate row of the training batch. Default: 1. */
  n?: number;
  stream: boolean;
  includeUsage: boolean;
  logprobs: boolean;
  returnTokenIds: boolean;
  /** Seed from the request, which replaces the episode's random key. The same seed, context and weights sample the same tokens. */
  seed: number | undefined;
  /** Sampling parameters that the request sets; they override the run's. */
  sampling: Partial<SamplingParams>;
  metadata: Readonly<Record<string, string>>;
  user: string | undefined;
  /** Paths of the request's fields that were accepted but have no effect, in the names of its API. */
  hints?: readonly string[];
}

const MAX_TOKENS = 2 ** 31 - 1;
const MAX_STOPS = 16;
const MAX_CHOICES = 128;
/** Maximum number of most likely tokens that the sampler can return per position. */
const MAX_TOP_LOGPROBS = 8;

const flag = v.boolean('true or false');
const nonEmpty = (words: string) => v.pipe(v.string(words), v.minLength(1, words));

const STOP = `a text, or a list of at most ${MAX_STOPS}, none of them empty`;
const stop = v.pipe(
  v.union([nonEmpty(STOP), v.pipe(v.array(nonEmpty(STOP)), v.maxLength(MAX_STOPS, STOP))], STOP),
  v.transform((given) => (typeof given === 'string' ? [given] : given)),
);

const OPTIONS = '{ include_usage: true or false }';
const FORMAT = '{ type: "text" }, { type: "json_object" } or { type: "json_schema", json_schema: { name, schema } }';
const responseFormat = v.variant(
  'type',
  [
    v.object({ type: v.literal('text') }),
    v.object({ type: v.literal('json_object') }),
    v.object({
      type: v.literal('json_schema'),
      json_schema: v.object({ schema: v.optional(v.unknown(), {}) }, FORMAT),
    }),
  ],
  FORMAT,
);

const CHOICE = '"auto", "none", "required" or { type: "function", function: { name } }';
const toolChoice = v.union(
  [
    v.picklist(['auto', 'none', 'required']),
    v.pipe(
      v.object({ type: v.literal('function'), function: v.object({ name: v.string() }) }),
      v.transform((given) => given.function),
    ),
  ],
  CHOICE,
);

/** Returns the schemas of all served fields except `messages` and `tools`. */
function parameters(vocabSize: number, mostStops: number) {
  const tokenId = whole(0, vocabSize - 1);
  const bias = `an object of at most 64 numbers from -100 to 100, by token ids from 0 to ${vocabSize - 1}`;
  const biasKey = v.pipe(v.string(), v.digits(), v.transform(Number), tokenId);
  const stopIds = `a list of at most ${mostStops} token ids, from 0 to ${vocabSize - 1}`;
  return v.partial(
    v.object({
      stream_options: v.pipe(
        v.custom<Readonly<Record<string, unknown>>>(isObject, OPTIONS),
        v.check(({ include_usage: usage }) => [true, false, null, undefined].includes(usage as boolean), OPTIONS),
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
      n: whole(1, MAX_CHOICES),
      tool_choice: toolChoice,
      parallel_tool_calls: flag,
      response_format: responseFormat,
      modalities: v.custom((given) => ['"text"', '["text"]'].includes(JSON.stringify(given)), '["text"]'),
    }),
  ).entries;
}

/**
 * Validates a request. The result lists the request's fields without effect as hints. Throws ApiError that names the first parameter that
 * is invalid or cannot be served; for a strict model also for the first hint.
 * @param api the API from which the request was translated, if any
 */
export function readRequest(
  body: unknown,
  model: ServedModel,
  { names, ignored: nested }: Partial<Pick<Translated, 'names' | 'ignored'>> = {},
): CallRequest {
  const { vocabSize, eosTokens } = model;
  const entries = {
    messages: messagesSchema,
    tools: v.optional(toolsSchema, []),
    ...parameters(vocabSize, 4 - eosTokens),
  };
  const hints = new Set<string>();
  const hint = (name: string, refusal: () => ApiError) => {
    if (model.strict) throw refusal();
    hints.add(nameIn(names, name.slice(0, 64)));
  };
  const given = readBody(entries, isObject(body) ? served(body, Object.keys(entries), hint) : body);
  const { messages, tools, stream = false, stream_options: options, logprobs = false, top_logprobs: top = 0 } = given;
  if (options && !stream) throw refuse('stream_options', 'stream_options needs stream: true.');
  if (top !== 0 && !logprobs) throw refuse('top_logprobs', 'top_logprobs needs logprobs: true.');
  const { model: asked, temperature, parallel_tool_calls: isParallel = true, response_format: format } = given;
  if (asked !== undefined && asked !== model.name) hint('model', () => otherModel(asked, model));
  if (temperature !== undefined && temperature !== model.temperature)
    hint('temperature', () => otherTemperature(temperature, model));
  if (!isParallel && tools.length > 0)
    hint('parallel_tool_calls', () =>
      refuse(
        'parallel_tool_calls',
        'parallel_tool_calls is false; allowed: true. The model decides how many calls it makes.',
      ),
    );
  for (const { path, known } of nested ?? ignoredFields('chat', body as object)) hint(path, () => unknown(path, known));
  const jsonSchema = format && jsonSchemaOf(format, hint);
  const required = requiredTools(given.tool_choice, tools);
  const constrained = required ? 'tool_choice' : jsonSchema && 'response_format';
  if (constrained && given.min_tokens)
    throw refuse(
      'min_tokens',
      `min_tokens is ${given.min_tokens}, but ${constrained} decides where the reply ends. Leave one of them out.`,
    );
  return {
    messages,
    tools,
    toolsKey: JSON.stringify(tools.map(({ name, description, parameters: schema }) => [name, description, schema])),
    parse: tools.length > 0 && given.tool_choice !== 'none',
    ...(required && { required }),
    ...(!isParallel && { oneCall: true }),
    ...(jsonSchema && { jsonSchema }),
    ...(given.n !== undefined && given.n > 1 && { n: given.n }),
    stream,
    includeUsage: options?.['include_usage'] === true,
    logprobs,
    returnTokenIds: given.return_token_ids ?? false,
    seed: given.seed,
    sampling: {
      ...model.stop,
      ...withoutNull({
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
    },
    metadata: given.metadata ?? {},
    user: given.user,
    ...(hints.size > 0 && { hints: [...hints] }),
  };
}

type Hint = (name: string, refusal: () => ApiError) => void;

/**
 * Returns the fields of a request that are served. Null counts as absent. Calls `hint` for fields without effect, and throws ApiError for a
 * field in REFUSED.
 */
function served(body: object, known: readonly string[], hint: Hint): object {
  const given = Object.entries(body).filter(([, value]) => value !== null && value !== undefined);
  for (const [name, value] of given) {
    if (known.includes(name)) continue;
    const why = ownValue(REFUSED, name);
    if (why !== undefined) throw refuse(name, `"${name}" is not served; ${why}.`);
    if (!ownValue(HINTS, name)?.includes(value)) hint(name, () => unknown(name, known));
  }
  return Object.fromEntries(given.filter(([name]) => known.includes(name)));
}

const ownValue = <T>(table: Readonly<Record<string, T>>, name: string): T | undefined =>
  Object.hasOwn(table, name) ? table[name] : undefined;

const unknown = (name: string, known: readonly string[]): ApiError =>
  refuse(
    name.slice(0, 64),
    `${JSON.stringify(name.slice(0, 64))} is not served; known: ${known.join(', ') || 'none'}.`,
  );

/** Returns the tools of which the reply must call one; undefined if it need not call any. */
function requiredTools(choice: v.InferOutput<typeof toolChoice> | undefined, tools: Tool[]): Tool[] | undefined {
  if (choice === undefined || choice === 'auto' || choice === 'none') return undefined;
  const named = choice === 'required' ? tools : tools.filter(({ name }) => name === choice.name);
  if (named.length > 0) return named;
  const what = choice === 'required' ? '"required"' : `the tool ${JSON.stringify(choice.name.slice(0, 64))}`;
  throw refuse(
    'tool_choice',
    `tool_choice is ${what}, but tools has no such tool. Give it in tools, or leave tool_choice out.`,
  );
}

function jsonSchemaOf(format: v.InferOutput<typeof responseFormat>, hint: Hint): ArgumentSchema | undefined {
  if (format.type === 'text') return undefined;
  if (format.type === 'json_object') return { type: 'object' };
  const at = 'response_format.json_schema.schema';
  const { schema, unenforced } = readSchema(format.json_schema.schema, at);
  for (const keyword of unenforced)
    hint(`response_format.${keyword}`, () =>
      refuse(at, `The schema has "${keyword}", which is not enforced here. Leave it out.`),
    );
  return schema;
}

/** Returns the object without its null and undefined values. */
const withoutNull = <T extends object>(given: T) =>
  Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null && value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };

const otherModel = (asked: string, { name }: ServedModel): ApiError =>
  new ApiError(`There is no model ${JSON.stringify(asked)}. This run serves "${name}".`, {
    status: 404,
    param: 'model',
    code: 'model_not_found',
  });

const otherTemperature = (temperature: number, run: ServedModel): ApiError =>
  refuse(
    'temperature',
    `temperature is ${temperature}, but the run samples and trains at ${run.temperature} (rollout.temperature), by ` +
      'which the loss divides the logits. Leave temperature out, or set rollout.temperature.',
  );
