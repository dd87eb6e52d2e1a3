/**
 * Request and response types of OpenAI's Chat Completions API, compatible with the types of the `openai` package. Only served fields are
 * listed; request.ts lists the fields that are refused, with reasons.
 */

/** A tool call in a reply. */
export interface ToolCallShape {
  /** Id of the call. The tool message with its result must have the same id as `tool_call_id`. */
  id: string;
  /** The only allowed value. */
  type: 'function';
  /** `arguments` is JSON text. */
  function: { name: string; arguments: string };
}

type Text = string | readonly { type: 'text'; text: string }[];

/** A message of a request. The role `developer` is treated as `system`. */
export type MessageShape =
  | { role: 'system' | 'developer' | 'user'; content: Text; name?: string }
  | { role: 'assistant'; content?: Text | null; tool_calls?: readonly ToolCallShape[]; refusal?: string | null }
  | { role: 'tool'; content: Text; tool_call_id: string };

/** A tool that the model can call. */
export interface ToolShape {
  /** The only allowed value. */
  type: 'function';
  /** JSON schema of the arguments, with type object. Undefined if the tool has no arguments. */
  function: { name: string; description?: string; parameters?: Record<string, unknown>; strict?: boolean | null };
}

/** Parameters of `chat.completions.create`: OpenAI's, followed by additional ones of vLLM. Null counts as absent. */
export interface CompletionParams {
  /** The conversation so far; at least one message. */
  messages: readonly MessageShape[];
  /** Ignored, because the server has only one model. */
  model?: string;
  /** Tools that the model can call. Default: none. */
  tools?: readonly ToolShape[] | null;
  /** 'none' = tool calls in the reply are not parsed and stay in the text; 'required' or a named tool = the reply must be tool calls. */
  tool_choice?: 'auto' | 'none' | 'required' | { type: 'function'; function: { name: string } } | null;
  /** False to return only the first call of a reply. */
  parallel_tool_calls?: boolean | null;
  /** Constrains the reply to JSON, optionally by a schema. */
  response_format?:
    | { type: 'text' | 'json_object' }
    | { type: 'json_schema'; json_schema: { name?: string; schema?: Record<string, unknown>; strict?: boolean | null } }
    | null;
  /** Has no effect: replies are sampled at the run's rollout.temperature, because the loss divides the logits by that temperature. */
  temperature?: number | null;
  /** Samples only from the smallest set of most likely tokens whose total probability reaches this value, above 0 to 1. */
  top_p?: number | null;
  /** Maximum number of tokens of the reply. A full context also ends the reply. */
  max_completion_tokens?: number | null;
  /** Older name of `max_completion_tokens`. */
  max_tokens?: number | null;
  /** Stop strings: texts that end the reply. */
  stop?: string | readonly string[] | null;
  /** Seed of the reply's random numbers, instead of the run's. */
  seed?: number | null;
  /** Number of replies. All belong to the episode: the first continues its conversation, each of the others starts a fork. */
  n?: number | null;
  /** True to return the log-prob of each sampled token. */
  logprobs?: boolean | null;
  /** Number of most likely tokens to return at each position of the reply, 0 to 8. */
  top_logprobs?: number | null;
  /** Same as SamplingParams.presencePenalty. */
  presence_penalty?: number | null;
  /** Same as SamplingParams.frequencyPenalty. */
  frequency_penalty?: number | null;
  /** Values added to the logits of tokens, by token id. */
  logit_bias?: Record<string, number> | null;
  /** True to stream the reply in chunks. */
  stream?: boolean | null;
  /** With `include_usage: true`, the last chunk of a stream has the token counts. */
  stream_options?: { include_usage?: boolean } | null;
  /** Name of an end user. Requests without an episode name continue a conversation only if it has the same `user`. */
  user?: string | null;
  /** Texts by name. Over HTTP, `group` and `trajectory` name the episode that the request belongs to. */
  metadata?: Record<string, string> | null;
  /** vLLM's: samples only from the k most likely tokens. */
  top_k?: number | null;
  /** vLLM's: samples only from tokens whose probability is at least min_p times that of the most likely token. */
  min_p?: number | null;
  /** vLLM's: same as SamplingParams.repetitionPenalty. */
  repetition_penalty?: number | null;
  /** vLLM's: minimum number of tokens before the reply can end. */
  min_tokens?: number | null;
  /** vLLM's: ids of tokens that end the reply. */
  stop_token_ids?: readonly number[] | null;
  /** vLLM's: true to keep the stop string at the end of the text. */
  include_stop_str_in_output?: boolean | null;
  /** vLLM's: true to return the token ids of the context and of the reply. */
  return_token_ids?: boolean | null;
}

/** A token with its log-prob. */
export interface TokenLogprob {
  /** The token's text. */
  token: string;
  /** Natural logarithm of the token's probability, over the full vocabulary at the run's temperature. */
  logprob: number;
  /** UTF-8 bytes of the token's text; null if the token is only part of a character. */
  bytes: number[] | null;
}

/** Log-probs of a reply. */
export interface Logprobs {
  /** One entry per token of the reply. */
  content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[];
  /** Always null: refusals are not supported. */
  refusal: null;
}

/** Reason why a reply ended. */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** Token counts of a request. */
export interface Usage {
  /** Number of context tokens, including tool outputs and earlier replies. */
  prompt_tokens: number;
  /** Number of tokens of all replies, including their end tokens. */
  completion_tokens: number;
  /** Sum of prompt_tokens and completion_tokens. */
  total_tokens: number;
}

interface Head {
  /** Id of the completion, which contains the id of the trajectory. A request to /v1/rewards can use it to name the trajectory. */
  id: string;
  /** Time of creation, in Unix seconds. */
  created: number;
  /** Name of the run, which is the model's name. */
  model: string;
  /** Names the training step whose weights were the newest when the completion was created. */
  system_fingerprint: string;
}

/** A complete chat completion. */
export interface ChatCompletion extends Head {
  /** Type of this object: a complete completion, not a chunk. */
  object: 'chat.completion';
  /** One choice per reply (`n`). */
  choices: {
    index: number;
    message: { role: 'assistant'; content: string | null; refusal: null; tool_calls?: ToolCallShape[] };
    logprobs: Logprobs | null;
    finish_reason: FinishReason;
    /** vLLM's: the stop string that ended the reply; undefined if another reason ended it. */
    stop_reason?: string;
    /** vLLM's: ids of the reply's tokens. Only if the request sets `return_token_ids`. */
    token_ids?: number[];
  }[];
  /** Token counts of the request. */
  usage: Usage;
  /** vLLM's: ids of all context tokens, including tool outputs and earlier replies. Only if the request sets `return_token_ids`. */
  prompt_token_ids?: number[];
}

/** The part of a streamed reply that one chunk adds. */
export interface ChunkDelta {
  /** Role of the reply; present only in the first chunk. */
  role?: 'assistant';
  /** Text that this chunk adds to the reply. */
  content?: string | null;
  /** Complete tool calls, which are sent at the end of the reply. */
  tool_calls?: (ToolCallShape & { index: number })[];
}

/** One chunk of a streamed completion. */
export interface ChatCompletionChunk extends Head {
  /** Type of this object: a chunk, not a complete completion. */
  object: 'chat.completion.chunk';
  /** Always exactly one choice. */
  choices: {
    index: number;
    delta: ChunkDelta;
    logprobs?: Logprobs | null;
    finish_reason: FinishReason | null;
    /** vLLM's: the stop string that ended the reply. */
    stop_reason?: string;
    /** vLLM's: ids of the reply's tokens. Only in its last chunk, if the request sets `return_token_ids`. */
    token_ids?: number[];
  }[];
  /** vLLM's: ids of all context tokens, as in a complete answer. In the last chunk of a reply with `token_ids`. */
  prompt_token_ids?: number[];
  /** Token counts. Only in the last chunk, if the request sets `stream_options.include_usage`. */
  usage?: Usage | null;
}
