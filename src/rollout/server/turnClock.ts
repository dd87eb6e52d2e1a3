/** Measures the time a request spends waiting, in prefill and in decoding, for the profile. */

type TurnPhase = 'queue' | 'prefill' | 'decode';

/** 'sample' = drawing tokens from logits; told apart from 'decode' by the GPU's clock alone, and part of it without one. */
export type SpanKind = TurnPhase | 'sample';

/** Milliseconds since the request arrived. */
export interface TurnSpan {
  kind: SpanKind;
  start: number;
  end: number;
  /** GPU time of the passes of the span, for all sequences in them; absent without timestamps. */
  gpuMs?: number;
}

/** A pass over the model as the host saw it (performance.now) and, where there are timestamps, as the GPU did. */
export interface PassTimes {
  started: number;
  ended: number;
  /** Rows run through the model: new context, and steps x live sequences. */
  prefillRows: number;
  decodeRows: number;
  gpu?: GpuTimes;
}

/** Milliseconds of prefill rows, of decode steps, and of the draws of both ('sample'). */
export type GpuTimes = Record<'prefill' | 'decode' | 'sample', number>;

export class TurnClock {
  readonly #arrived = performance.now();
  readonly #spans: TurnSpan[] = [];
  #kind: TurnPhase = 'queue';
  #since = this.#arrived;
  #gpuMs: number | undefined;
  #sampleMs = 0;

  /** Ends the present span and begins another; a preempted request is back in the queue. */
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

  /** Counts a pass the request took part in; `prefilled` = its last context token was run in it. */
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

  /** Draws alternate with passes over the model: their sum stands behind them, as one span. */
  #push(kind: SpanKind, start: number, end: number, gpuMs: number | undefined): void {
    const gpu = gpuMs === undefined ? {} : { gpuMs };
    this.#spans.push({ kind, start: start - this.#arrived, end: end - this.#arrived, ...gpu });
  }

  #addGpu(ms: number | undefined): void {
    if (ms !== undefined) this.#gpuMs = (this.#gpuMs ?? 0) + ms;
  }
}

/** Prefill and decode steps of a pass go to the GPU together; where it does not time them, their rows divide the pass. */
function prefillEnd({ started, ended, prefillRows, decodeRows, gpu }: PassTimes): number {
  const [first, rest] = gpu ? [gpu.prefill, gpu.decode + gpu.sample] : [prefillRows, decodeRows];
  return started + ((ended - started) * first) / Math.max(first + rest, 1e-9);
}
