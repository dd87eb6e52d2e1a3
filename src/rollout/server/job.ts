/** One request inside the engine, from its arrival to its answer; preemption sends it back to waiting in between. */

import { checkAdjusted } from '../decode/adjustedDraws.ts';
import type { DecoderSizes, DrawnTokens } from '../decode/decoder.ts';
import type { Sequence } from './kvCache.ts';
import type { CallGuide } from '../constrained/guide.ts';
import { checkStopStrings, type StopMatcher } from '../decode/stopStrings.ts';
import { TurnClock } from './turnClock.ts';
import type { GenerateRequest, Generation } from '../types.ts';

/** Tokens drawn without a break, and the version of the weights that drew them. */
export interface Piece {
  drawn: DrawnTokens;
  version: number;
}

export interface Job {
  request: GenerateRequest;
  resolve: (generation: Generation) => void;
  reject: (error: unknown) => void;
  /** Number of its sample in order of arrival: who comes first is served first, and preempted last. */
  arrival: number;
  phase: 'waiting' | 'prefill' | 'decode';
  /** The request's context and what it drew before it was preempted. */
  contextIds: Uint32Array;
  pieces: Piece[];
  /** Own tokens of the context that still have to be prefilled start here. */
  next: number;
  /** Tokens drawn since it last got its slot, as of the last look. */
  drawn: number;
  /** Tokens that passes may draw which nobody has looked at yet. */
  inTheAir: number;
  aborted: boolean;
  /** Where the request asked for it. */
  clock: TurnClock | undefined;
  /** Reads along with what is drawn. Without it nobody looks at the tokens until the job ends. */
  stops: StopMatcher | undefined;
  /** What keeps its tool calls valid, and where the turn's text stands. */
  guided: { guide: CallGuide; state: number } | undefined;
  /** Tokens drawn since it last got its slot, as far as the host has read along. */
  known: number[];
  /** The stop string that its last token completes. */
  stopString: string | undefined;
}

/** A job that runs, with what it holds. */
export type Running = Job & { sequence: Sequence };

export function newJob(
  request: GenerateRequest,
  arrival: number,
  readers: Pick<Job, 'stops' | 'guided'>,
  resolve: Job['resolve'],
  reject: Job['reject'],
): Job {
  const { contextIds } = request;
  return {
    request,
    resolve,
    reject,
    arrival,
    phase: 'waiting',
    contextIds,
    pieces: [],
    next: 0,
    drawn: 0,
    inTheAir: 0,
    aborted: false,
    ...readers,
    clock: request.timed ? new TurnClock() : undefined,
    known: [],
    stopString: undefined,
  };
}

/** Throws RangeError on a request that the engine could never serve. */
export function checkRequest(request: GenerateRequest, sizes: DecoderSizes, vocabSize: number): void {
  const { contextIds, promptLength, sampling } = request;
  const { slotCapacity, maxPromptLength } = sizes;
  const own = contextIds.length - promptLength;
  if (promptLength < 1 || own < 0)
    throw new RangeError(`promptLength is ${promptLength} of a context of ${contextIds.length} tokens.`);
  if (promptLength > maxPromptLength)
    throw new RangeError(
      `A prompt has ${promptLength} tokens but data.maxPromptLength is ${maxPromptLength}; raise it or shorten the prompt.`,
    );
  if (own >= slotCapacity)
    throw new RangeError(`A context has ${own} tokens after its prompt; a slot holds ${slotCapacity}.`);
  if (sampling.stopTokenIds.length > 4)
    throw new RangeError(`${sampling.stopTokenIds.length} stop token ids were given; at most 4 are allowed.`);
  checkStopStrings(sampling.stop ?? []);
  checkAdjusted(sampling, vocabSize);
}

/** The request with maxNewTokens at most what its slot has room for. */
export function bounded(request: GenerateRequest, slotCapacity: number): GenerateRequest {
  const { contextIds, promptLength, sampling } = request;
  const room = slotCapacity - (contextIds.length - promptLength);
  return { ...request, sampling: { ...sampling, maxNewTokens: Math.max(1, Math.min(sampling.maxNewTokens, room)) } };
}

/** Tokens that the job may still draw, before the limit of its slot, once passes in the air have drawn theirs. */
export const tokensLeft = ({ request, contextIds, drawn, inTheAir }: Job): number =>
  request.sampling.maxNewTokens - (contextIds.length - request.contextIds.length) - drawn - inTheAir;

/** Keeps what was drawn since the job got its slot; it becomes part of the context. */
export function keepPiece(job: Job, drawn: DrawnTokens, version: number): void {
  job.pieces.push({ drawn, version });
  const context = new Uint32Array(job.contextIds.length + drawn.tokenIds.length);
  context.set(job.contextIds);
  context.set(drawn.tokenIds, job.contextIds.length);
  job.contextIds = context;
  job.drawn = 0;
  job.inTheAir = 0;
  job.known = [];
}

/** Whether anyone reads the job's tokens before it ends. */
export const looksAtTokens = ({ stops, guided, request }: Job): boolean => Boolean(stops ?? guided ?? request.onTokens);

/** Takes tokens that the job has drawn beyond those it knows; what follows a stop string is as if it had not been drawn. */
export function readAlong(job: Job, tokenIds: Uint32Array): void {
  for (const token of tokenIds) {
    job.known.push(token);
    if (job.guided) job.guided.state = job.guided.guide.after(job.guided.state, token);
    job.stopString = job.stops?.feed(token);
    if (job.stopString !== undefined) break;
  }
  job.drawn = job.known.length;
}

/** The answer: all pieces end to end. */
export function generationOf(
  { pieces, request, stopString, clock }: Job,
  stopReason: Generation['stopReason'],
): Generation {
  const parts = pieces.map(({ drawn }) => drawn);
  const { entropy, topLogprobs } = request.sampling;
  const logMass = joined(parts.map((p) => p.logMass));
  return {
    tokenIds: Uint32Array.from(parts.flatMap((p) => [...p.tokenIds])),
    logProbs: joined(parts.map((p) => p.logProbs)),
    ...(logMass.some((m) => m !== 0) && { logMass }),
    ...(entropy && { entropies: joined(parts.map((p) => p.entropies ?? new Float32Array(0))) }),
    ...(topLogprobs && { alternatives: parts.flatMap((p) => p.alternatives ?? []) }),
    weightVersions: Uint32Array.from(pieces.flatMap((p) => [...p.drawn.tokenIds].map(() => p.version))),
    stopReason,
    ...(stopString !== undefined && { stopString }),
    ...(clock && { spans: clock.end() }),
  };
}

function joined(parts: Float32Array[]): Float32Array {
  if (parts.length === 1) return parts[0];
  const out = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
