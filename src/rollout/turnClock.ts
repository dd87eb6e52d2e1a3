/** What one request spends its time on inside the engine, for the profile. */

export type TurnPhase = 'queue' | 'prefill' | 'decode';

/** Milliseconds since the request arrived. */
export interface TurnSpan {
  kind: TurnPhase;
  start: number;
  end: number;
  /** What the GPU computed in the passes of the span, for all sequences in them; absent without timestamps. */
  gpuMs?: number;
}

/** A pass over the model as the host saw it (performance.now) and, where there are timestamps, as the GPU did. */
export interface PassTimes {
  started: number;
  ended: number;
  /** Rows run through the model: new context, and steps x live sequences. */
  prefillRows: number;
  decodeRows: number;
  gpu?: { prefill: number; decode: number };
}

export class TurnClock {
  readonly #arrived = performance.now();
  readonly #spans: TurnSpan[] = [];
  #kind: TurnPhase = 'queue';
  #since = this.#arrived;
  #gpuMs: number | undefined;

  /** The present span ends and another begins; a preempted request is back in the queue. */
  enter(kind: TurnPhase, at = performance.now()): void {
    const gpu = this.#gpuMs === undefined ? {} : { gpuMs: this.#gpuMs };
    this.#spans.push({ kind: this.#kind, start: this.#since - this.#arrived, end: at - this.#arrived, ...gpu });
    this.#kind = kind;
    this.#since = at;
    this.#gpuMs = undefined;
  }

  /** Counts a pass the request took part in; `prefilled` = its last context token was run in it. */
  pass(times: PassTimes, prefilled: boolean): void {
    if (this.#kind === 'prefill') this.#addGpu(times.gpu?.prefill);
    if (prefilled) this.enter('decode', prefillEnd(times));
    if (this.#kind === 'decode') this.#addGpu(times.gpu?.decode);
  }

  /** All spans, the last one ended now. */
  end(): TurnSpan[] {
    this.enter('queue');
    return this.#spans;
  }

  #addGpu(ms: number | undefined): void {
    if (ms !== undefined) this.#gpuMs = (this.#gpuMs ?? 0) + ms;
  }
}

/** Prefill and decode steps of a pass go to the GPU together; where it does not time them, their rows divide the pass. */
function prefillEnd({ started, ended, prefillRows, decodeRows, gpu }: PassTimes): number {
  const [first, rest] = gpu ? [gpu.prefill, gpu.decode] : [prefillRows, decodeRows];
  return started + ((ended - started) * first) / Math.max(first + rest, 1e-9);
}
