/** Measures the time that a request spends waiting, in prefill and in decoding, for the profile. */

type TurnPhase = 'queue' | 'prefill' | 'decode';

/**
 * 'sample' = sampling tokens from logits. Only the GPU's clock separates it from 'decode'; without it, it is part of
 * 'decode'.
 */
export type SpanKind = TurnPhase | 'sample';

/** Milliseconds since the request arrived. */
export interface TurnSpan {
  kind: SpanKind;
  start: number;
  end: number;
  /** GPU time of the passes of the span, for all sequences in them. Undefined without timestamps. */
  gpuMs?: number;
}

/** Times of a pass over the model as the host measured it (performance.now) and, with timestamps, as the GPU did. */
export interface PassTimes {
  started: number;
  ended: number;
  /** Rows run through the model: new context, and steps x live sequences. */
  prefillRows: number;
  decodeRows: number;
  gpu?: GpuTimes;
}

/** Milliseconds of prefill rows, of decode steps, and of sampling in both ('sample'). */
export type GpuTimes = Record<'prefill' | 'decode' | 'sample', number>;

/** Measures the spans of one request. */
export class TurnClock {
  readonly #arrived = performance.now();
  readonly #spans: TurnSpan[] = [];
  #kind: TurnPhase = 'queue';
  #since = this.#arrived;
  #gpuMs: number | undefined;
  #sampleMs = 0;

  /** Ends the current span and starts another. A preempted request is back in the queue. */
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

  /** Counts a pass that the request took part in. `prefilled` = its last context token ran in this pass. */
  pass(times: PassTimes, prefilled: boolean): void {
    if (this.#kind === 'prefill') this.#addGpu(times.gpu?.prefill);
    if (prefilled) this.enter('decode', prefillEnd(times));
    if (this.#kind !== 'decode') return;
    this.#addGpu(times.gpu?.decode);
    this.#sampleMs += times.gpu?.sample ?? 0;
  }

  /** Ends the last span and returns all of them. */
  end(): TurnSpan[] {
    this.enter('queue');
    return this.#spans;
  }

  /** Sampling alternates with passes over the model, so its sum is added after them as one span. */
  #push(kind: SpanKind, start: number, end: number, gpuMs: number | undefined): void {
    const gpu = gpuMs === undefined ? {} : { gpuMs };
    this.#spans.push({ kind, start: start - this.#arrived, end: end - this.#arrived, ...gpu });
  }

  #addGpu(ms: number | undefined): void {
    if (ms !== undefined) this.#gpuMs = (this.#gpuMs ?? 0) + ms;
  }
}

/**
 * Estimates when prefill ended. Prefill and decode steps of a pass are submitted together; without GPU times, their
 * rows divide the pass.
 */
function prefillEnd({ started, ended, prefillRows, decodeRows, gpu }: PassTimes): number {
  const [first, rest] = gpu ? [gpu.prefill, gpu.decode + gpu.sample] : [prefillRows, decodeRows];
  return started + ((ended - started) * first) / Math.max(first + rest, 1e-9);
}
