/** One request inside the server, from its arrival to its answer. Preemption puts it back to waiting in between. */

import { concat } from '../../concat.ts';
import type { GuidedTurn } from '../constrained/guide.ts';
import type { DrawnTokens } from '../decode/decoder.ts';
import type { StopMatcher } from '../decode/stopStrings.ts';
import type { DrawnSoFar, GenerateRequest, Generation } from '../types.ts';
import { concatTokens, TURN_FIELDS } from '../tokenLog.ts';
import type { CachedSequence } from './kvCache.ts';
import { TurnClock } from './turnClock.ts';

/** Readers of each drawn token on the host. A job without them is read when it ends. */
export interface Watchers {
  stops: StopMatcher | undefined;
  guide: GuidedTurn | undefined;
}

/** A job that holds a slot. */
export type RunningJob = Job & { cached: CachedSequence };

export class Job {
  readonly request: GenerateRequest;
  readonly clock: TurnClock | undefined;
  /** Constrains the next token to a valid tool call. */
  readonly guide: GuidedTurn | undefined;
  phase: 'waiting' | 'prefill' | 'decode' = 'waiting';
  /** Number of the sample in order of arrival: the first is served first and preempted last. */
  arrival = 0;
  /** The request's context and the tokens drawn before a preemption. */
  contextIds: Uint32Array;
  cached: CachedSequence | undefined;
  /** Context tokens after the prompt that are computed, or will be by a pass in flight. */
  computedTokens = 0;
  /** Tokens drawn since the job got its slot, as of the last read-back. */
  drawnCount = 0;
  /** Tokens that passes in flight may draw. */
  tokensInFlight = 0;
  /** Tokens drawn since the job got its slot that the host has read. */
  hostTokens: number[] = [];
  /** The stop string that the last token completes. */
  stopString: string | undefined;
  aborted = false;
  readonly #stops: StopMatcher | undefined;
  /** Tokens drawn between two preemptions. */
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

  /** Tokens drawn for this request before it was last preempted. */
  get drawnBefore(): number {
    return this.contextIds.length - this.request.contextIds.length;
  }

  /** Tokens that may still be drawn once the passes in flight have drawn theirs. */
  get tokensLeft(): number {
    return this.request.sampling.maxNewTokens - this.drawnBefore - this.drawnCount - this.tokensInFlight;
  }

  /** True if stop strings or the caller read the tokens before the job ends. */
  get isWatched(): boolean {
    return this.#stops !== undefined || this.request.onTokens !== undefined;
  }

  /** The job gets its slot, which has `computedTokens` of its own context tokens already. */
  start(cached: CachedSequence, computedTokens: number): RunningJob {
    this.phase = 'prefill';
    this.clock?.enter('prefill');
    this.computedTokens = computedTokens;
    return Object.assign(this, { cached });
  }

  /** The job has lost its slot. */
  wait(): void {
    this.phase = 'waiting';
    this.clock?.enter('queue');
  }

  /** Takes tokens that the host has read; those after a stop string are dropped. */
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

  /** Keeps the tokens drawn since the job got its slot; they become part of the context. */
  keepDrawn(drawn: DrawnTokens, weightVersion: number): void {
    this.#keep({ ...drawn, weightVersions: new Uint32Array(drawn.tokenIds.length).fill(weightVersion) });
    this.drawnCount = 0;
    this.tokensInFlight = 0;
    this.hostTokens = [];
  }

  /** What was drawn until the last preemption. */
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

  /** Takes over tokens that another engine has drawn, as if this one had before a preemption. */
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
