/** Events of a sample for the profile: one for each span of its time. Times are performance.now(), milliseconds. */

import type { SpanKind } from '../server/turnClock.ts';

/**
 * 'start' = waiting for its turn to begin; 'generate' = in the engine, of which 'queue' (for a slot), 'prefill', 'decode'
 * and 'sample' (drawing tokens; part of 'decode' where the GPU does not time it) are parts where the engine tells them
 * apart; 'reward' = scoring; 'wait' = done, waiting for the step's others.
 */
export type EventKind = 'start' | 'generate' | SpanKind | 'parse' | 'tool' | 'reward' | 'wait';

/** A span of a sample's time, milliseconds of performance.now(). */
export interface SampleEvent {
  /** What it was spent on. */
  kind: EventKind;
  /** Assistant turns finished when it ended. */
  turn: number;
  /** When it began. */
  start: number;
  /** When it ended. */
  end: number;
  /** 'prefill', 'decode', 'sample': GPU time of the passes the sample was in; absent without timestamps. */
  gpuMs?: number;
}
