/** Measures for the profile how long a request waits, is in prefill, and is in decode. */

type TurnPhase = 'queue' | 'prefill' | 'decode';

/**
 * Kind of a span. 'sample' = sampling tokens from logits. Only the GPU's clock can separate 'sample' from 'decode'. Without timestamps,
 * sampling is part of 'decode'.
 */
export type SpanKind = TurnPhase | 'sample';

/** Span of a request's time; start and end in milliseconds since the request arrived. */
export interface TurnSpan {
  kind: SpanKind;
  start: number;
  end: number;
  /** GPU time of the passes in the span, for all sequences in these passes. Undefined without timestamps. */
  gpuMs?: number;
}

/** Times of a pass over the model as measured by the host (performance.now) and, with timestamps, by the GPU. */
export interface PassTimes {
  started: number;
  ended: number;
  /** Rows that ran through the model: new context tokens (prefill), and steps x live sequences (decode). */
  prefillRows: number;
  decodeRows: number;
  gpu?: GpuTimes;
}

/** GPU milliseconds of a pass: of prefill rows, of decode steps, and of sampling in both. */
export type GpuTimes = Record<'prefill' | 'decode' | 'sample', number>;

/** Measures the spans of one request. */
export class TurnClock {
  readonly #arrived = performance.now();
  readonly #spans: TurnSpan[] = [];
  #kind: TurnPhase = 'queue';
  #since = this.#arrived;
  #gpuMs: number | undefined;
  #sampleMs = 0;

  /**
   * Ends the current span and starts another one. A preempted request is in the queue again. In a span of decode, sampling alternates with
   * passes over the model; if the GPU has timed it, the span is recorded as two spans in a row, 'decode' and 'sample'.
   */
  enter(kind: TurnPhase, at = performance.now()): void {
    const sampleMs = this.#sampleMs;
    const drew = at - ((at - this.#since) * sampleMs) / Math.max(sampleMs + (this.#gpuMs ?? 0), 1e-9);
    this.#push(this.#kind, this.#since, sampleMs > 0 ? drew : at, this.#gpuMs);
    if (sampleMs > 0) this.#push('sample', drew, at, sampleMs);
    this.#kind = kind;
    this.#since = at;
    this.#gpuMs = undefined;
    this.#sampleMs = 0;
  }

  /** Counts a pass that the request took part in. `isDecoding` = the request's context is complete after it. */
  pass(times: PassTimes, isDecoding: boolean): void {
    if (this.#kind === 'prefill') {
      this.#addGpu(times.gpu?.prefill);
      if (isDecoding) this.enter('decode', prefillEnd(times));
    }
    if (this.#kind !== 'decode') return;
    this.#addGpu(times.gpu?.decode);
    this.#sampleMs += times.gpu?.sample ?? 0;
  }

  /** Ends the last span and returns all spans. */
  end(): TurnSpan[] {
    this.enter('queue');
    return this.#spans;
  }

  /** Adds a span. Its times are stored relative to the request's arrival. */
  #push(kind: SpanKind, start: number, end: number, gpuMs: number | undefined): void {
    const gpu = gpuMs === undefined ? {} : { gpuMs };
    this.#spans.push({ kind, start: start - this.#arrived, end: end - this.#arrived, ...gpu });
  }

  #addGpu(ms: number | undefined): void {
    if (ms !== undefined) this.#gpuMs = (this.#gpuMs ?? 0) + ms;
  }
}

/**
 * Estimates when prefill ended. The prefill and the decode steps of a pass are submitted together. Without GPU times, the pass is divided
 * in proportion to its rows.
 */
function prefillEnd({ started, ended, prefillRows, decodeRows, gpu }: PassTimes): number {
  const [first, rest] = gpu ? [gpu.prefill, gpu.decode + gpu.sample] : [prefillRows, decodeRows];
  return started + ((ended - started) * first) / Math.max(first + rest, 1e-9);
}
