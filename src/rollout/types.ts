/** Messages between agent loops (main thread) and the rollout server (GPU worker). */

import type { CallableTool, CallFormat } from './constrained/toolGrammar.ts';
import type { TurnSpan } from './server/turnClock.ts';
import type { DrawnSoFar, SampleArrays } from './tokenLog.ts';

export type { DrawnSoFar } from './tokenLog.ts';

/** How a turn is drawn. */
export interface SamplingParams {
  /** 0 = greedy (log-probs are then recorded at temperature 1). */
  temperature: number;
  /** Keep the k most likely; 0 = off. */
  topK: number;
  /** Keep the smallest set whose mass reaches topP; 1 = off. */
  topP: number;
  /** Keep tokens with p >= minP * max p; 0 = off. */
  minP: number;
  /** Tokens that the turn may have, the stop token among them. */
  maxNewTokens: number;
  /** Tokens that end the turn; the one that did is part of it. */
  stopTokenIds: number[];
  /** Tokens to draw before a stop token may be drawn; 0 = off. */
  minNewTokens?: number;
  /** Above 1 makes tokens of the context and of this turn less likely; 1 = off. */
  repetitionPenalty?: number;
  /** Taken off the logit of a token that this turn has drawn already; 0 = off. */
  presencePenalty?: number;
  /** Taken off the logit of a token for each time this turn has drawn it; 0 = off. */
  frequencyPenalty?: number;
  /** [token id, added to its logit], at most 64. */
  logitBias?: [number, number][];
  /** Texts that end a turn at the token which completes one, wherever in the token; at most 16. vLLM's name. */
  stop?: string[];
  /** Keeps the stop string in the turn's text, as tools and rewards read it; its tokens always do. vLLM's name. */
  includeStopStrInOutput?: boolean;
  /**
   * Constrains a tool call, once begun, to a valid call of one of these tools; costs a read-back a token, or a draft pass.
   * The probability mass that the constraint left is part of logMass.
   */
  toolCalls?: readonly CallableTool[];
  /** How calls are written; default 'hermes'. */
  toolCallFormat?: CallFormat;
  /** Return the entropy at each token. */
  entropy?: boolean;
  /** Return the likeliest tokens at each place, at most 8; 0 = off. */
  topLogprobs?: number;
}

/**
 * One turn of one sample, as in verl's server mode. The context is always the whole token sequence so far; the engine
 * recomputes only what it does not have in its cache (the group's shared prompt, and this sample's earlier turns).
 */
export interface GenerateRequest {
  /** Sticky: the same id on a later turn continues from that sample's own cache. */
  requestId: string;
  /** Whole context, tokens in, tokens out: on a later turn it must extend what this id has in the cache. */
  contextIds: Uint32Array;
  /** The first `promptLength` tokens are the prompt, shared by every request that has the same ones. */
  promptLength: number;
  /** Counter-based random key of the sample, from (seed, step, prompt, sample); the position is the counter. */
  key: [number, number];
  /** How the turn is drawn. */
  sampling: SamplingParams;
  /** Tokens that another engine has drawn of this turn already (`drawnSoFar`): the turn continues after them. */
  drawn?: DrawnSoFar;
  /** Answer with `spans` as well. */
  timed?: boolean;
  /**
   * Called with the tokens as they are read back, in order, for display. Costs a read-back a token; from an engine in a worker
   * the last may come after the answer.
   */
  onTokens?: (tokenIds: readonly number[]) => void;
}

/** A turn as the engine drew it: T tokens. */
export interface Generation extends DrawnSoFar {
  /** Nats, of the whole vocabulary at the sampling temperature; only if `entropy` was asked for. */
  entropies?: Float32Array;
  /** [tokens][topLogprobs], largest first; only if `topLogprobs` was asked for. */
  alternatives?: { tokenId: number; logProb: number }[][];
  /**
   * 'stop' = one of stopTokenIds (it is the last token); 'stop_string' = the last token completes one of `stop`;
   * 'length' = maxNewTokens or the slot is full.
   */
  stopReason: 'stop' | 'stop_string' | 'length' | 'aborted';
  /** The one of `stop` that ended the turn. */
  stopString?: string;
  /** Spans of the request's time, in order; only if `timed` asked for them. */
  spans?: TurnSpan[];
}

/** The part of a rollout engine that one sample needs. */
export type TurnEngine = Pick<RolloutEngine, 'generate' | 'release' | 'abort'>;

/** Generates: continuous batching over a KV cache. A call of `generate` is one turn of one sample. */
export interface RolloutEngine {
  /** Resolves at the end of the turn. Rejects with RangeError for a context, prompt or setting that the engine has no room for. */
  generate(request: GenerateRequest): Promise<Generation>;
  /** Frees the sample's cache. Every id that was generated for must be released once. */
  release(requestId: string): void;
  /** Ends requests with stopReason 'aborted' and the tokens they have; a later turn may continue from them. */
  abort(requestIds: string[]): void;
  /**
   * Forgets everything cached; must be called after every weight update. Requests in the middle of a turn keep the
   * tokens they have drawn and continue under the new weights, whose version is `weightVersion`; absent = one more.
   */
  resetCache(weightVersion?: number): void | Promise<void>;
  /** Resolves once no pass is running: the weights may then be changed. Requests stay, new ones queue. */
  pause(): Promise<void>;
  /** Resolves once nothing is to be computed for any request, or after so many milliseconds. */
  idle(maxMs: number): Promise<void>;
  /** Resumes after `pause`. */
  resume(): void | Promise<void>;
  /**
   * What requests have drawn, for a checkpoint; undefined for those that are not in flight. Forgets everything cached, as
   * an engine that continues from the checkpoint has nothing cached.
   */
  drawnSoFar(requestIds: string[]): Promise<(DrawnSoFar | undefined)[]>;
  /** Counters since the last call: tokens generated, prompt tokens computed and not recomputed, decode steps, wasted rows. */
  takeStats(): Promise<RolloutStats>;
}

/** Counts since they were last taken. */
export interface RolloutStats {
  /** Tokens drawn. */
  generatedTokens: number;
  /** Context tokens run through the model. */
  prefillTokens: number;
  /** Context tokens that came from a cache instead. */
  cachedTokens: number;
  /** Passes that drew a token for each live sequence. */
  decodeSteps: number;
  /** Rows decoded after their sequence had already stopped. */
  wastedRows: number;
  /** Live rows summed over decode steps. */
  liveRows: number;
  /** Times a sample lost its cache so that another could have its slot. */
  preemptions: number;
  /** Speculative decoding: tokens guessed. */
  draftTokens: number;
  /** Guesses that were drawn. */
  acceptedTokens: number;
  /** Rows of sequences that tokens were guessed for. */
  verifications: number;
}

/**
 * Reasons why a sample ended, which docs/reference/tools.md explains. A sample that ends by 'error' is not trained on: its agent loop or tool
 * parser failed, under trainer.onError: skip.
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
/** Why a sample ended. */
export type StopReason = (typeof STOP_REASONS)[number];

/**
 * One finished sample, ready to train on. Example, prompt P P, turn 1 = A a, tool output t t, turn 2 = B:
 *   promptIds    P P
 *   responseIds  A    a    t  t  B
 *   mask         1    1    0  0  1      1 = sampled by the policy
 *   logProbs    -.2  -.9   0  0 -.1     0 wherever mask is 0
 */
export interface Trajectory extends SampleArrays {
  /** Why it ended. */
  stopReason: StopReason;
  /** Turns of the model. */
  numTurns: number;
  /** Calls that were run, those that failed among them. */
  numToolCalls: number;
  /** Calls that failed: unreadable, unknown, thrown, too late. */
  numToolErrors: number;
}
