/** Events of a sample for the profile. Each is one span of the sample's time, in milliseconds of performance.now(). */

import type { SpanKind } from '../server/turnClock.ts';

/**
 * Kind of a span. 'start' = waiting to start; 'generate' = in the engine. If the engine measures its parts, they replace 'generate':
 * 'queue' (waiting for a slot), 'prefill', 'decode' and 'sample' (sampling tokens; part of 'decode' without GPU timestamps). 'reward' =
 * scoring; 'wait' = finished, and waiting for the step's other samples.
 */
export type EventKind = 'start' | 'generate' | SpanKind | 'parse' | 'tool' | 'reward' | 'wait';

/** Start and end of a span, in milliseconds of performance.now(). */
export type Span = readonly [start: number, end: number];

/** A span of a sample's time, in milliseconds of performance.now(). */
export interface SampleEvent {
  /** Activity during the span. */
  kind: EventKind;
  /** Number of assistant turns that the sample had finished at the end of the span. */
  turn: number;
  /** Start of the span. */
  start: number;
  /** End of the span. */
  end: number;
  /** GPU time of the passes that the sample took part in, for 'prefill', 'decode' and 'sample'. Undefined without timestamps. */
  gpuMs?: number;
}
