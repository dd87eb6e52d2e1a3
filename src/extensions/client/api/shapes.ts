/**
 * Request and response types of OpenAI's Chat Completions API. Code and types written for the `openai` package fit them. Only served fields
 * are listed; request.ts lists what is refused, and why.
 */

/** A tool call in a reply. */
export interface ToolCallShape {
  /** Id that the tool message with the result must name. */
  id: string;
  /** The only allowed value. */
  type: 'function';
  /** `arguments` is JSON text. */
  function: { name: string; arguments: string };
}

type Text = string | readonly { type: 'text'; text: string }[];

/** A message of a request. `developer` is read as `system`. */
export type MessageShape =
  | { role: 'system' | 'developer' | 'user'; content: Text; name?: string }
  | { role: 'assistant'; content?: Text | null; tool_calls?: readonly ToolCallShape[]; refusal?: string | null }
  | { role: 'tool'; content: Text; tool_call_id: string };

/** A tool that the model may call. */
export interface ToolShape {
  /** The only allowed value. */
  type: 'function';
  /** `parameters` is a JSON schema of type object. Undefined if the tool has no arguments. */
  function: { name: string; description?: string; parameters?: Record<string, unknown>; strict?: boolean | null };
}

/** Parameters of `chat.completions.create`: OpenAI's, then vLLM's additional ones. Null counts as absent. */
export interface CompletionParams {
  /** The conversation, at least one message. */
  messages: readonly MessageShape[];
  /** Any name: there is one model. */
  model?: string;
  /** Tools that the model can call. Default: none. */
  tools?: readonly ToolShape[] | null;
  /** 'none' = calls in the reply stay text; 'required' or a named tool = the reply is calls. */
  tool_choice?: 'auto' | 'none' | 'required' | { type: 'function'; function: { name: string } } | null;
  /** False to return only the first call of a reply. */
  parallel_tool_calls?: boolean | null;
  /** Constrains the reply to JSON. */
  response_format?:
    | { type: 'text' | 'json_object' }
    | { type: 'json_schema'; json_schema: { name?: string; schema?: Record<string, unknown>; strict?: boolean | null } }
    | null;
  /** Replies are sampled at the run's rollout.temperature, whatever is given, because the trainer divides every logit by that. */
  temperature?: number | null;
  /** Keeps the smallest set of tokens whose probability mass reaches this value, 0 to 1. */
  top_p?: number | null;
  /** Maximum number of tokens of the reply. The space left in the context is a second limit. */
  max_completion_tokens?: number | null;
  /** The older name of `max_completion_tokens`. */
  max_tokens?: number | null;
  /** Texts that end the reply. */
  stop?: string | readonly string[] | null;
  /** Samples with this seed instead of the run's. */
  seed?: number | null;
  /** Number of replies. All are part of the episode: the first continues it, each of the others is a fork. */
  n?: number | null;
  /** True to return the log-prob of each token. */
  logprobs?: boolean | null;
  /** Number of most likely tokens to return at each position, 0 to 8. */
  top_logprobs?: number | null;
  /** Same as SamplingParams.presencePenalty. */
  presence_penalty?: number | null;
  /** Same as SamplingParams.frequencyPenalty. */
  frequency_penalty?: number | null;
  /** Added to the logit of a token, by its id. */
  logit_bias?: Record<string, number> | null;
  /** True to return the reply in chunks. */
  stream?: boolean | null;
  /** With `include_usage`, the last chunk has the token counts. */
  stream_options?: { include_usage?: boolean } | null;
  /** Over HTTP, requests of different users never share a conversation. */
  user?: string | null;
  /** Over HTTP `group` and `trajectory` name the episode. */
  metadata?: Record<string, string> | null;
  /** vLLM's: keeps only the k most likely tokens. */
  top_k?: number | null;
  /** vLLM's: keeps only tokens with p >= min_p * max p. */
  min_p?: number | null;
  /** vLLM's: same as SamplingParams.repetitionPenalty. */
  repetition_penalty?: number | null;
  /** vLLM's: least number of tokens before the reply can end. */
  min_tokens?: number | null;
  /** vLLM's: tokens that end the reply. */
  stop_token_ids?: readonly number[] | null;
  /** vLLM's: keeps the stop string in the text. */
  include_stop_str_in_output?: boolean | null;
  /** vLLM's: returns the token ids of context and reply. */
  return_token_ids?: boolean | null;
}

/** A token with its log-prob. */
export interface TokenLogprob {
  /** The token's text. */
  token: string;
  /** Natural log-prob, over the full vocabulary at the run's temperature. */
  logprob: number;
  /** UTF-8 bytes of the text; null if the token is only part of a character. */
  bytes: number[] | null;
}

/** Log-probs of a reply. */
export interface Logprobs {
  /** One entry per token. */
  content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[];
  /** Always null: refusals are not supported. */
  refusal: null;
}

/** Reason why a reply ended. */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** Token counts of a call. */
export interface Usage {
  /** Tokens of the context, including tool outputs and earlier replies. */
  prompt_tokens: number;
  /** Tokens of the reply, including its end token. */
  completion_tokens: number;
  /** Sum of both. */
  total_tokens: number;
}

interface Head {
  /** Id of the completion, which contains the trajectory's. A reward can name the trajectory by it. */
  id: string;
  /** Unix seconds. */
  created: number;
  /** The run's name. */
  model: string;
  /** Training step of the newest weights when the completion was created. */
  system_fingerprint: string;
}

/** A complete answer. */
export interface ChatCompletion extends Head {
  /** Distinguishes an answer from a chunk. */
  object: 'chat.completion';
  /** One for each of `n`. */
  choices: {
    index: number;
    message: { role: 'assistant'; content: string | null; refusal: null; tool_calls?: ToolCallShape[] };
    logprobs: Logprobs | null;
    finish_reason: FinishReason;
    /** vLLM's; the stop string that ended the reply. Undefined if none did. */
    stop_reason?: string;
    /** vLLM's; only with `return_token_ids`. */
    token_ids?: number[];
  }[];
  /** Token counts of the call. */
  usage: Usage;
  /** vLLM's: all context tokens, including tool outputs and earlier replies. Only with `return_token_ids`. */
  prompt_token_ids?: number[];
}

/** The part of a reply that a chunk adds. */
export interface ChunkDelta {
  /** Set in the first chunk. */
  role?: 'assistant';
  /** The next piece of text. */
  content?: string | null;
  /** Tool calls, once they are known. */
  tool_calls?: (ToolCallShape & { index: number })[];
}

/** One chunk of an answer. */
export interface ChatCompletionChunk extends Head {
  /** Distinguishes a chunk from a complete answer. */
  object: 'chat.completion.chunk';
  /** Always exactly one. */
  choices: {
    index: number;
    delta: ChunkDelta;
    logprobs?: Logprobs | null;
    finish_reason: FinishReason | null;
    /** vLLM's; the stop string that ended the reply. */
    stop_reason?: string;
  }[];
  /** Set in the last chunk if `stream_options.include_usage` is set. */
  usage?: Usage | null;
}
