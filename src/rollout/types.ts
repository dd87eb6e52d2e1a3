/** Types of the requests and answers between agent loops (main thread) and the rollout server (GPU worker). */

import type { ArgumentSchema, ToolSchema } from '../tasks/toolSchema.ts';
import type { TurnSpan } from './server/turnClock.ts';
import type { DrawnSoFar, SampleArrays } from './tokenLog.ts';

export type { DrawnSoFar } from './tokenLog.ts';

/** Name and parameters of a tool, as plain data that can be sent to a worker. */
export interface CallableTool {
  name: string;
  parameters: ToolSchema;
}

/** Same names as `rollout.multiTurn.format`. */
export type CallFormat = 'hermes' | 'qwen3_coder' | 'glm' | 'llama3_json';

/** Sampling settings of a turn. */
export interface SamplingParams {
  /** Sampling temperature; 0 = greedy (log-probs are then recorded at temperature 1). */
  temperature: number;
  /** Sample from the k most likely tokens; 0 = off. */
  topK: number;
  /** Sample from the smallest set of tokens that has this share of the mass that topK keeps; 1 = off. */
  topP: number;
  /** Sample from tokens with p >= minP * max p; 0 = off. */
  minP: number;
  /** Maximum number of tokens of the turn, including the stop token. */
  maxNewTokens: number;
  /** Ids of tokens that end the turn. The token that ended it is part of the turn. */
  stopTokenIds: number[];
  /** Minimum number of tokens of the turn before a stop token is allowed; 0 = off. Ignored if a constraint allows no free text after a call. */
  minNewTokens?: number;
  /** Repetition penalty. A value above 1 makes tokens less likely that are in the context or in this turn; 1 = off. */
  repetitionPenalty?: number;
  /** Subtracted from the logit of a token that occurs in this turn already; 0 = off. */
  presencePenalty?: number;
  /** Subtracted from the logit of a token once for each time it occurs in this turn; 0 = off. */
  frequencyPenalty?: number;
  /** Pairs of a token id and a number that is added to its logit, at most 64. */
  logitBias?: readonly (readonly [number, number])[];
  /** Stop strings. A turn ends at the token that completes one of them, even in the middle of the token. At most 16. vLLM's name. */
  stop?: string[];
  /**
   * True to keep the stop string in the turn's text, which tools and rewards read. Its tokens are always kept. vLLM's
   * name.
   */
  includeStopStrInOutput?: boolean;
  /**
   * Constrains each tool call that the model starts to a valid call of one of these tools. Costs one read-back per token, or per pass that
   * checks guesses. logMass includes the probability mass that the constraint left.
   */
  toolCalls?: readonly CallableTool[];
  /** Format of tool calls. Default: 'hermes'. */
  toolCallFormat?: CallFormat;
  /** If tool calls are forced, the number of calls that the turn must consist of: exactly one, or at least one. Needs `toolCalls`. */
  requiredCalls?: 'one' | 'some';
  /** Constrains the complete turn to JSON of this schema. With `toolCalls`, the turn can consist of such calls instead. */
  jsonSchema?: ArgumentSchema;
  /** True to return the entropy of the distribution at each token. */
  entropy?: boolean;
  /** Number of most likely tokens to return at each position, at most 8; 0 = off. */
  topLogprobs?: number;
}

/** Settings of a request that constrain its turn. */
export type TurnConstraint = Pick<SamplingParams, 'toolCalls' | 'toolCallFormat' | 'requiredCalls' | 'jsonSchema'>;

/** True if the constraint can forbid tokens in the turn. */
export const isConstrained = ({ toolCalls = [], jsonSchema }: TurnConstraint): boolean =>
  toolCalls.length > 0 || jsonSchema !== undefined;

/**
 * Request for one turn of one sample, as in verl's server mode. The context is always the full token sequence so far. The engine recomputes
 * only what its cache lacks. The cache has the prompt, which the group shares, and the sample's earlier turns.
 */
export interface GenerateRequest {
  /** Id of the sample, the same for all of its turns. A later turn continues from the sample's cache. */
  requestId: string;
  /** Token ids of the full context. On a later turn, they must start with the tokens in the cache of this `requestId`. */
  contextIds: Uint32Array;
  /** Number of tokens at the start of the context that are the prompt. It is shared by all requests with the same prompt. */
  promptLength: number;
  /** Random key of the sample, computed from (seed, step, prompt, sample). The counter of the random numbers is the token's position. */
  key: readonly [number, number];
  /** Sampling settings of the turn. */
  sampling: SamplingParams;
  /** Tokens of this turn that another engine has sampled (see `drawnSoFar`). The turn continues after them. */
  drawn?: DrawnSoFar;
  /** True to return `spans` with the turn. */
  timed?: boolean;
  /**
   * Called with tokens as they are read back, in order, for display. Costs one read-back per token. If the engine is in a worker, the last
   * tokens can arrive after the answer.
   */
  onTokens?: (tokenIds: readonly number[]) => void;
}

/** A turn of T tokens, as the engine returns it. */
export interface Generation extends DrawnSoFar {
  /** [T] entropy of the full vocabulary's distribution at the sampling temperature, in nats. Only if `entropy` was requested. */
  entropies?: Float32Array;
  /** [T][topLogprobs] the most likely tokens at each position, largest first. Only if `topLogprobs` was requested. */
  alternatives?: { tokenId: number; logProb: number }[][];
  /**
   * Reason for the end of the turn: 'stop' = it ends with one of stopTokenIds; 'stop_string' = its last token completes one of `stop`;
   * 'length' = it has reached maxNewTokens, or its slot is full; 'aborted' = `abort` was called.
   */
  stopReason: 'stop' | 'stop_string' | 'length' | 'aborted';
  /** The one of the strings in `stop` that ended the turn. */
  stopString?: string;
  /** Spans of the request's time, in order. Only if `timed` was set. */
  spans?: TurnSpan[];
}

/** The methods of a rollout engine that one sample uses. */
export type TurnEngine = Pick<RolloutEngine, 'generate' | 'release' | 'abort'>;

/** Rollout engine: continuous batching over a KV cache. A call of `generate` is one turn of one sample. */
export interface RolloutEngine {
  /**
   * Generates one turn. Resolves when the turn ends. Rejects with RangeError for a context, prompt or setting that the engine does not
   * support.
   */
  generate(request: GenerateRequest): Promise<Generation>;
  /** Frees the cache of a sample. Must be called once for every `requestId` that was used. */
  release(requestId: string): void;
  /** Ends requests with stopReason 'aborted' and the tokens sampled so far. A later turn can continue from these. */
  abort(requestIds: string[]): void;
  /**
   * Clears the cache. Must be called after every weight update. Requests in the middle of a turn keep their tokens and continue with the
   * new weights.
   * @param weightVersion version of the new weights; default: one more than before
   */
  resetCache(weightVersion?: number): void | Promise<void>;
  /**
   * Pauses the server. Resolves once no pass is running, so that the weights can be changed. Requests are kept, and new ones are queued.
   */
  pause(): Promise<void>;
  /** Resolves once no request needs a pass, or after `maxMs` milliseconds. */
  idle(maxMs: number): Promise<void>;
  /** Resumes after `pause`. */
  resume(): void | Promise<void>;
  /**
   * Returns for a checkpoint the tokens sampled so far of each of these requests; undefined for a request that is not in flight. Clears the
   * cache, because an engine that continues from the checkpoint also starts without one.
   */
  drawnSoFar(requestIds: string[]): Promise<(DrawnSoFar | undefined)[]>;
  /** Returns and resets the counters of the engine; see RolloutStats. */
  takeStats(): Promise<RolloutStats>;
}

/** Counters of the engine since the last `takeStats`. */
export interface RolloutStats {
  /** Number of sampled tokens. */
  generatedTokens: number;
  /** Number of context tokens that ran through the model. */
  prefillTokens: number;
  /** Number of context tokens whose keys and values were in the cache already. */
  cachedTokens: number;
  /** Number of passes that sampled a token for each live sequence. */
  decodeSteps: number;
  /** Number of rows that were decoded after their sequence had stopped. */
  wastedRows: number;
  /** Number of rows of live sequences, summed over decode steps. */
  liveRows: number;
  /** Number of times that a sample lost its slot so that another one could have it. */
  preemptions: number;
  /** Speculative decoding: tokens guessed. */
  draftTokens: number;
  /** Guesses that were right. */
  acceptedTokens: number;
  /** Number of sequences whose guesses were checked, summed over passes. */
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
  /** Number of tool calls that were run, failed ones included. */
  numToolCalls: number;
  /** Number of tool calls that failed: unreadable, unknown tool, exception, timeout, or a text that starts with "Error:". */
  numToolErrors: number;
  /** Number of texts that tools and the environment returned, for metrics alone. Undefined if they ran outside of this program. */
  numToolOutputs?: number;
  /** Number of these texts that were truncated at `maxToolResponseLength`. */
  numTruncatedOutputs?: number;
}

/** Fields of a trajectory that are not values per token. */
export type TrajectoryCounts = Omit<Trajectory, keyof SampleArrays>;

/** Returns the fields of a trajectory that are not values per token. */
export function countsOf(trajectory: Trajectory): TrajectoryCounts {
  const { stopReason, numTurns, numToolCalls, numToolErrors, numToolOutputs, numTruncatedOutputs } = trajectory;
  const outputs = { ...(numToolOutputs !== undefined && { numToolOutputs, numTruncatedOutputs }) };
  return { stopReason, numTurns, numToolCalls, numToolErrors, ...(outputs as Partial<TrajectoryCounts>) };
}
