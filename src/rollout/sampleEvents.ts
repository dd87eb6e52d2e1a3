/** What a sample spends its time on, told as it happens. Times are performance.now(), milliseconds. */

/**
 * 'start' = waiting for its turn to begin; 'generate' = in the engine, of which 'queue' (for a slot), 'prefill' and
 * 'decode' are parts where the engine tells them apart; 'reward' = scoring; 'wait' = done, waiting for the step's others.
 */
export type EventKind = 'start' | 'generate' | 'queue' | 'prefill' | 'decode' | 'parse' | 'tool' | 'reward' | 'wait';

export interface SampleEvent {
  kind: EventKind;
  /** Assistant turns finished when it ended. */
  turn: number;
  start: number;
  end: number;
  /** 'prefill', 'decode': what the GPU computed meanwhile in the passes the sample was in; absent without timestamps. */
  gpuMs?: number;
}
