/**
 * The shapes of OpenAI's Chat Completions API that a client of ours takes and gives, so that code and types written against
 * the `openai` package fit. Only what is served is here; request.ts says what is refused, and why.
 */

/** A call of a tool, as a reply has it. */
export interface ToolCallShape {
  /** What a tool message answers it by. */
  id: string;
  /** The only type there is. */
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
  /** The only type there is. */
  type: 'function';
  /** `parameters` is a JSON schema of type object; absent = no arguments. */
  function: { name: string; description?: string; parameters?: Record<string, unknown>; strict?: boolean | null };
}

/** `chat.completions.create`: OpenAI's parameters, then vLLM's further ones. Null is as absent. */
export interface CompletionParams {
  /** The conversation, at least one message. */
  messages: readonly MessageShape[];
  /** Anything by `Learner.client`; over HTTP the run's name. */
  model?: string;
  /** What the model may call; absent = nothing. */
  tools?: readonly ToolShape[] | null;
  /** 'none' = calls in the reply stay text. */
  tool_choice?: 'auto' | 'none' | null;
  /** Only the run's (rollout.temperature), which the trainer divides every logit by. */
  temperature?: number | null;
  /** Keep the smallest set whose mass reaches it, 0 to 1. */
  top_p?: number | null;
  /** Tokens of the reply at most; never more than the context has room for. */
  max_completion_tokens?: number | null;
  /** The older name of `max_completion_tokens`. */
  max_tokens?: number | null;
  /** Texts that end the reply. */
  stop?: string | readonly string[] | null;
  /** Draws by this seed instead of the run's. */
  seed?: number | null;
  /** Only 1: each try is an episode of its own. */
  n?: number | null;
  /** Answer with the log-prob of each token. */
  logprobs?: boolean | null;
  /** With the likeliest tokens at each place, 0 to 8. */
  top_logprobs?: number | null;
  /** Same as SamplingParams.presencePenalty. */
  presence_penalty?: number | null;
  /** Same as SamplingParams.frequencyPenalty. */
  frequency_penalty?: number | null;
  /** Added to the logit of a token, by its id. */
  logit_bias?: Record<string, number> | null;
  /** Answer in chunks. */
  stream?: boolean | null;
  /** `include_usage`: the last chunk counts the tokens. */
  stream_options?: { include_usage?: boolean } | null;
  /** Over HTTP it keeps the conversations of users apart. */
  user?: string | null;
  /** Over HTTP `group` and `trajectory` name the episode. */
  metadata?: Record<string, string> | null;
  /** vLLM's: keep the k most likely. */
  top_k?: number | null;
  /** vLLM's: keep tokens with p >= min_p * max p. */
  min_p?: number | null;
  /** vLLM's: as SamplingParams.repetitionPenalty. */
  repetition_penalty?: number | null;
  /** vLLM's: tokens before the reply may end. */
  min_tokens?: number | null;
  /** vLLM's: tokens that end the reply. */
  stop_token_ids?: readonly number[] | null;
  /** vLLM's: keeps the stop string in the text. */
  include_stop_str_in_output?: boolean | null;
  /** vLLM's: answer with the ids of context and reply. */
  return_token_ids?: boolean | null;
}

/** A token with its log-prob. */
export interface TokenLogprob {
  /** Its text. */
  token: string;
  /** Natural log, over the whole vocabulary at the run's temperature. */
  logprob: number;
  /** UTF-8; null for a token that is part of a character. */
  bytes: number[] | null;
}

/** Log-probs of a reply. */
export interface Logprobs {
  /** One entry a token. */
  content: (TokenLogprob & { top_logprobs: TokenLogprob[] })[];
  /** There are none here. */
  refusal: null;
}

/** Why a reply ended. */
export type FinishReason = 'stop' | 'length' | 'tool_calls';

/** Tokens of a call. */
export interface Usage {
  /** Tokens of the context, including tool outputs and earlier replies. */
  prompt_tokens: number;
  /** Tokens of the reply, including its end token. */
  completion_tokens: number;
  /** Sum of both. */
  total_tokens: number;
}

interface Head {
  /** Names the trajectory: a reward may be given by it. */
  id: string;
  /** Unix seconds. */
  created: number;
  /** The run's name. */
  model: string;
  /** The training step whose weights were newest when it was made. */
  system_fingerprint: string;
}

/** An answer. */
export interface ChatCompletion extends Head {
  /** Tells it from a chunk. */
  object: 'chat.completion';
  /** One. */
  choices: {
    index: number;
    message: { role: 'assistant'; content: string | null; refusal: null; tool_calls?: ToolCallShape[] };
    logprobs: Logprobs | null;
    finish_reason: FinishReason;
    /** vLLM's; only with `return_token_ids`. */
    token_ids?: number[];
  }[];
  /** Its tokens. */
  usage: Usage;
  /** vLLM's: the whole context, tool outputs and earlier replies included; only with `return_token_ids`. */
  prompt_token_ids?: number[];
}

/** What a chunk adds. */
export interface ChunkDelta {
  /** In the first chunk. */
  role?: 'assistant';
  /** Text that follows. */
  content?: string | null;
  /** Calls, as they are known. */
  tool_calls?: (ToolCallShape & { index: number })[];
}

/** A part of an answer. */
export interface ChatCompletionChunk extends Head {
  /** Tells it from an answer. */
  object: 'chat.completion.chunk';
  /** One. */
  choices: { index: number; delta: ChunkDelta; logprobs?: Logprobs | null; finish_reason: FinishReason | null }[];
  /** Set in the last chunk if `stream_options.include_usage` is set. */
  usage?: Usage | null;
}
