/** One request in the server, from its arrival to its answer. A preempted request waits again before it continues. */

import { concat } from '../../concat.ts';
import type { DrawnTokens } from '../decode/decoder.ts';
import type { StopMatcher } from '../decode/stopStrings.ts';
import type { DrawnSoFar, GenerateRequest, Generation } from '../types.ts';
import { concatTokens, TURN_FIELDS } from '../tokenLog.ts';
import type { CachedSequence } from './kvCache.ts';
import { TurnClock } from './turnClock.ts';

/** Limits the next tokens of one turn. */
export interface TurnGuide {
  /** Advances by a token. Throws if the mask forbids it. */
  advance(token: number): void;
  /** Bits of the tokens that can come next, [ceil(V / 32)]; undefined = all. The turn has `tokensLeft` tokens left. */
  mask(tokensLeft: number): Uint32Array | undefined;
  /** Returns masks of the guessed tokens, up to the first forbidden one, and of the token after them. */
  masks(guesses: readonly number[], tokensLeft: number): (Uint32Array | undefined)[];
}

/** Matchers on the host that need each sampled token. Without them, tokens are read back only when the job ends. */
export interface Watchers {
  stops: StopMatcher | undefined;
  guide: TurnGuide | undefined;
}

/** A job that has a slot. */
export type RunningJob = Job & { cached: CachedSequence };

/** One request with its tokens, its state and its place in the cache. */
export class Job {
  readonly request: GenerateRequest;
  readonly clock: TurnClock | undefined;
  /** Constraint on the next tokens, if the request's tool calls are constrained. */
  readonly guide: TurnGuide | undefined;
  phase: 'waiting' | 'prefill' | 'decode' = 'waiting';
  /** Number of the job's sample in order of arrival. The lowest number is served first and preempted last. */
  arrival = 0;
  /** Context of the request, followed by the tokens that were sampled before preemptions. */
  contextIds: Uint32Array;
  cached: CachedSequence | undefined;
  /** Number of context tokens after the prompt whose keys and values are in the cache, or will be after the current pass. */
  computedTokens = 0;
  /** Number of tokens sampled since the job got its slot. */
  drawnCount = 0;
  /** Tokens that the host has read, of those sampled since the job got its slot. */
  hostTokens: number[] = [];
  /** Stop string that the last token has completed. */
  stopString: string | undefined;
  aborted = false;
  readonly #stops: StopMatcher | undefined;
  /** Tokens sampled so far, one part for each time that the job had a slot. */
  readonly #segments: DrawnTokens[] = [];
  readonly #resolve: (generation: Generation) => void;
  readonly #reject: (error: unknown) => void;

  constructor(
    request: GenerateRequest,
    watchers: Watchers,
    resolve: (generation: Generation) => void,
    reject: (error: unknown) => void,
  ) {
    this.request = request;
    this.contextIds = request.contextIds;
    this.clock = request.timed ? new TurnClock() : undefined;
    this.guide = watchers.guide;
    this.#stops = watchers.stops;
    this.#resolve = resolve;
    this.#reject = reject;
    if (request.drawn && request.drawn.tokenIds.length > 0) this.#resumeAfter(request.drawn);
  }

  /** Number of tokens sampled for this request before its last preemption. */
  get drawnBefore(): number {
    return this.contextIds.length - this.request.contextIds.length;
  }

  /** Number of tokens that can still be sampled. */
  get tokensLeft(): number {
    return this.request.sampling.maxNewTokens - this.drawnBefore - this.drawnCount;
  }

  /** True if the tokens are needed on the host before the job ends: for stop strings, or for the caller's display. */
  get isWatched(): boolean {
    return this.#stops !== undefined || this.request.onTokens !== undefined;
  }

  /** Called when the job gets its slot. The keys and values of `computedTokens` of its context tokens are in the slot already. */
  start(cached: CachedSequence, computedTokens: number): RunningJob {
    this.phase = 'prefill';
    this.clock?.enter('prefill');
    this.computedTokens = computedTokens;
    return Object.assign(this, { cached });
  }

  /** Called when the job has lost its slot. */
  wait(): void {
    this.phase = 'waiting';
    this.clock?.enter('queue');
  }

  /** Adds tokens that the host has read. Drops the tokens after a stop string. */
  takeTokens(tokenIds: Uint32Array): void {
    const before = this.hostTokens.length;
    for (const token of tokenIds) {
      this.hostTokens.push(token);
      this.guide?.advance(token);
      this.stopString = this.#stops?.feed(token);
      if (this.stopString !== undefined) break;
    }
    this.drawnCount = this.hostTokens.length;
    this.request.onTokens?.(this.hostTokens.slice(before));
  }

  /** Stores the tokens that were sampled since the job got its slot. They become part of the context. */
  keepDrawn(drawn: DrawnTokens, weightVersion: number): void {
    this.#keep({ ...drawn, weightVersions: new Uint32Array(drawn.tokenIds.length).fill(weightVersion) });
    this.drawnCount = 0;
    this.hostTokens = [];
  }

  /** Tokens of the request that were sampled before its last preemption. */
  get drawnSoFar(): DrawnSoFar {
    const { logMass, ...drawn } = concatTokens(this.#segments, TURN_FIELDS);
    return { ...drawn, ...(logMass.some((m) => m !== 0) && { logMass }) };
  }

  answer(stopReason: Generation['stopReason']): void {
    this.#resolve(this.#generation(stopReason));
  }

  fail(error: unknown): void {
    this.#reject(error);
  }

  /** Adds tokens that another engine has sampled, as if this engine had sampled them before a preemption. */
  #resumeAfter(drawn: DrawnSoFar): void {
    this.#keep(drawn);
    for (const token of drawn.tokenIds) {
      this.guide?.advance(token);
      this.#stops?.feed(token);
    }
  }

  #keep(segment: DrawnTokens): void {
    this.#segments.push(segment);
    this.contextIds = concat(Uint32Array, [this.contextIds, segment.tokenIds]);
  }

  #generation(stopReason: Generation['stopReason']): Generation {
    const { entropy, topLogprobs } = this.request.sampling;
    const entropies = this.#segments.flatMap((segment) => segment.entropies ?? []);
    return {
      ...this.drawnSoFar,
      ...(entropy && { entropies: concat(Float32Array, entropies) }),
      ...(topLogprobs && { alternatives: this.#segments.flatMap((segment) => segment.alternatives ?? []) }),
      stopReason,
      ...(this.stopString !== undefined && { stopString: this.stopString }),
      ...(this.clock && { spans: this.clock.end() }),
    };
  }
}
