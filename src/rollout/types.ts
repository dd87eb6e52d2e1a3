/** Messages between agent loops (main thread) and the rollout server (GPU worker). */

import type { ArgumentSchema, ToolSchema } from '../tasks/toolSchema.ts';
import type { TurnSpan } from './server/turnClock.ts';
import type { DrawnSoFar, SampleArrays } from './tokenLog.ts';

export type { DrawnSoFar } from './tokenLog.ts';

/** Call signature of a tool, as plain data, so that it can be sent to a worker. */
export interface CallableTool {
  name: string;
  parameters: ToolSchema;
}

/** Same names as `rollout.multiTurn.format`. */
export type CallFormat = 'hermes' | 'qwen3_coder' | 'glm' | 'llama3_json';

/** Sampling settings of a turn. */
export interface SamplingParams {
  /** 0 = greedy (log-probs are then recorded at temperature 1). */
  temperature: number;
  /** Keep the k most likely; 0 = off. */
  topK: number;
  /** Keep the smallest set whose mass reaches topP; 1 = off. */
  topP: number;
  /** Keep tokens with p >= minP * max p; 0 = off. */
  minP: number;
  /** Maximum number of tokens of the turn, including the stop token. */
  maxNewTokens: number;
  /** Tokens that end the turn; the turn includes the token that ended it. */
  stopTokenIds: number[];
  /** Tokens to sample before a stop token is allowed; 0 = off. */
  minNewTokens?: number;
  /** A value above 1 makes tokens of the context and of this turn less likely; 1 = off. */
  repetitionPenalty?: number;
  /** Subtracted from the logit of a token that this turn has already; 0 = off. */
  presencePenalty?: number;
  /** Subtracted from the logit of a token once for each time this turn has it; 0 = off. */
  frequencyPenalty?: number;
  /** [token id, added to its logit], at most 64. */
  logitBias?: [number, number][];
  /** Texts that end a turn at the token that completes one, even inside the token; at most 16. vLLM's name. */
  stop?: string[];
  /**
   * True to keep the stop string in the turn's text, which tools and rewards read. Its tokens are always kept. vLLM's
   * name.
   */
  includeStopStrInOutput?: boolean;
  /**
   * Constrains a started tool call to a valid call of one of these tools. Costs one read-back per token, or a draft
   * pass. logMass includes the probability mass that the constraint left.
   */
  toolCalls?: readonly CallableTool[];
  /** Format of the calls. Default: 'hermes'. */
  toolCallFormat?: CallFormat;
  /** Number of calls that a turn must consist of, if calls are forced: exactly one, or at least one. Needs `toolCalls`. */
  requiredCalls?: 'one' | 'some';
  /** Constrains the complete turn to JSON of this schema, or, if the turn can also call, to such JSON or `toolCalls`. */
  jsonSchema?: ArgumentSchema;
  /** True to return the entropy at each token. */
  entropy?: boolean;
  /** Number of most likely tokens to return at each position, at most 8; 0 = off. */
  topLogprobs?: number;
}

/** The settings that constrain a turn. */
export type TurnConstraint = Pick<SamplingParams, 'toolCalls' | 'toolCallFormat' | 'requiredCalls' | 'jsonSchema'>;

/** True if some tokens of the turn are not allowed. */
export const isConstrained = ({ toolCalls = [], jsonSchema }: TurnConstraint): boolean =>
  toolCalls.length > 0 || jsonSchema !== undefined;

/**
 * One turn of one sample, as in verl's server mode. The context is always the full token sequence so far. The engine
 * recomputes only what its cache lacks; the cache has the group's shared prompt and this sample's earlier turns.
 */
export interface GenerateRequest {
  /** Same id for all turns of a sample: a later turn continues from that sample's cache. */
  requestId: string;
  /** Full context as tokens. On a later turn it must extend what the cache has for this id. */
  contextIds: Uint32Array;
  /** The first `promptLength` tokens are the prompt, shared by every request with the same prompt. */
  promptLength: number;
  /** Counter-based random key of the sample, from (seed, step, prompt, sample). The position is the counter. */
  key: [number, number];
  /** Sampling settings of the turn. */
  sampling: SamplingParams;
  /** Tokens of this turn that another engine has sampled (`drawnSoFar`); the turn continues after them. */
  drawn?: DrawnSoFar;
  /** True to include `spans` in the answer. */
  timed?: boolean;
  /**
   * Called with the tokens as they are read back, in order, for display. Costs one read-back per token. From an engine
   * in a worker, the last tokens can arrive after the answer.
   */
  onTokens?: (tokenIds: readonly number[]) => void;
}

/** A turn of T tokens, as the engine returns it. */
export interface Generation extends DrawnSoFar {
  /** Nats, over the full vocabulary at the sampling temperature. Only if `entropy` was requested. */
  entropies?: Float32Array;
  /** [tokens][topLogprobs], largest first. Only if `topLogprobs` was requested. */
  alternatives?: { tokenId: number; logProb: number }[][];
  /**
   * 'stop' = one of stopTokenIds (it is the last token); 'stop_string' = the last token completes one of `stop`;
   * 'length' = maxNewTokens or the slot is full.
   */
  stopReason: 'stop' | 'stop_string' | 'length' | 'aborted';
  /** String of `stop` that ended the turn. */
  stopString?: string;
  /** Spans of the request's time, in order. Only if `timed` was set. */
  spans?: TurnSpan[];
}

/** Part of a rollout engine that one sample needs. */
export type TurnEngine = Pick<RolloutEngine, 'generate' | 'release' | 'abort'>;

/** Rollout engine: continuous batching over a KV cache. A call of `generate` is one turn of one sample. */
export interface RolloutEngine {
  /**
   * Resolves at the end of the turn. Rejects with RangeError for a context, prompt or setting that does not fit the
   * engine.
   */
  generate(request: GenerateRequest): Promise<Generation>;
  /** Frees the sample's cache. Call it once for every id that was used. */
  release(requestId: string): void;
  /** Ends requests with stopReason 'aborted' and the tokens they have. A later turn can continue from them. */
  abort(requestIds: string[]): void;
  /**
   * Clears the cache; must be called after every weight update. Requests in the middle of a turn keep their tokens and
   * continue under the new weights.
   * @param weightVersion version of the new weights; default: one more than before
   */
  resetCache(weightVersion?: number): void | Promise<void>;
  /** Resolves once no pass is running, so that the weights can be changed. Requests stay; new ones are queued. */
  pause(): Promise<void>;
  /** Resolves once no request needs a computation, or after `maxMs` milliseconds. */
  idle(maxMs: number): Promise<void>;
  /** Resumes after `pause`. */
  resume(): void | Promise<void>;
  /**
   * Returns the tokens of requests in flight, for a checkpoint; undefined for other requests. Clears the cache, because
   * an engine that continues from the checkpoint starts without one.
   */
  drawnSoFar(requestIds: string[]): Promise<(DrawnSoFar | undefined)[]>;
  /**
   * Returns and resets the counters: tokens generated, prompt tokens computed and cached, decode steps, wasted rows.
   */
  takeStats(): Promise<RolloutStats>;
}

/** Counts since the last `takeStats`. */
export interface RolloutStats {
  /** Tokens sampled. */
  generatedTokens: number;
  /** Context tokens run through the model. */
  prefillTokens: number;
  /** Context tokens read from a cache instead. */
  cachedTokens: number;
  /** Passes that sampled a token for each live sequence. */
  decodeSteps: number;
  /** Rows decoded after their sequence had stopped. */
  wastedRows: number;
  /** Live rows summed over decode steps. */
  liveRows: number;
  /** Number of times that a sample lost its cache so that another could have its slot. */
  preemptions: number;
  /** Speculative decoding: tokens guessed. */
  draftTokens: number;
  /** Guesses that were right. */
  acceptedTokens: number;
  /** Sequences in passes that checked guesses. */
  verifications: number;
}

/**
 * Reasons why a sample ended; docs/reference/tools.md explains each. A sample that ended with 'error' is not trained on:
 * its agent loop or tool parser failed under trainer.onError: skip.
 */
export const STOP_REASONS = [
  'completed',
  'done',
  'max_turns',
  'max_tokens',
  'max_tool_calls',
  'context_overflow',
  'parse_error',
  'tool_failure',
  'timeout',
  'aborted',
  'error',
] as const;
/** Reason why a sample ended: one of `STOP_REASONS`. */
export type StopReason = (typeof STOP_REASONS)[number];

/**
 * One finished sample, ready to train on. Example, prompt P P, turn 1 = A a, tool output t t, turn 2 = B:
 *   promptIds    P P
 *   responseIds  A    a    t  t  B
 *   mask         1    1    0  0  1      1 = sampled by the policy
 *   logProbs    -.2  -.9   0  0 -.1     0 wherever mask is 0
 */
export interface Trajectory extends SampleArrays {
  /** Reason why it ended. */
  stopReason: StopReason;
  /** Number of the model's turns. */
  numTurns: number;
  /** Number of calls that were run, including failed ones. */
  numToolCalls: number;
  /** Number of calls that failed: unreadable, unknown, thrown, timed out. */
  numToolErrors: number;
}
