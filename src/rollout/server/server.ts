/**
 * Rollout engine in server mode, as in vLLM. Requests of any length arrive at any time, and each is answered as soon as its turn ends. A
 * prompt is computed once for all requests that share it. Later turns of a sample continue from the sample's own slot.
 */

import type { Gpu } from '../../gpu/device.ts';
import type { LlamaModel } from '../../model/llama.ts';
import type { Vocabulary } from '../../model/tokenizer/vocabulary.ts';
import { nextTask } from '../agent/yield.ts';
import { Decoder, type DecoderSizes } from '../decode/decoder.ts';
import type { DrawnSoFar, GenerateRequest, Generation, RolloutEngine, RolloutStats } from '../types.ts';
import { Job } from './job.ts';
import { checkRequest, servedRequest } from './request.ts';
import { type KvCachePolicy, type Preemption, Scheduler } from './scheduler.ts';
import type { SlotDecoder } from './slotDecoder.ts';
import { draftedTokens, SampledTokens, type SpeculativeOptions } from './tokenSource.ts';
import { TokenWatchers } from './tokenWatchers.ts';

export type { KvCachePolicy, Preemption } from './scheduler.ts';

export interface RolloutOptions {
  /** Samples that can lose their slot while another one waits. Default: 'parked'. */
  preemption?: Preemption | undefined;
  /** Treatment of cached keys and values when the weights change. Default: 'recompute'. */
  kvCache?: KvCachePolicy | undefined;
  /**
   * True to schedule by counts alone, so that the same requests end in the same order each time. Default: schedules by measured times too.
   */
  repeatable?: boolean | undefined;
  /** Returns the vocabulary. Called once, for the first request with stop strings or constrained tool calls. */
  vocabulary?: (() => Vocabulary) | undefined;
  /** Settings of speculative decoding. Default: plain decoding. Tokens and log-probs are the same with and without. */
  speculative?: SpeculativeOptions | undefined;
}

/** Runs the scheduler as long as there are requests, and pauses it for weight updates. */
export class RolloutServer implements RolloutEngine {
  readonly #decoder: SlotDecoder;
  readonly #scheduler: Scheduler;
  readonly #watchers: TokenWatchers;
  #paused = false;
  #looping: Promise<void> | undefined;
  /** True if a request has arrived or a slot has become free since the last step started. */
  #hasNews = false;

  constructor(decoder: SlotDecoder, options: RolloutOptions = {}) {
    const { preemption = 'parked', kvCache = 'recompute', repeatable = false, speculative, vocabulary } = options;
    const tokenSource = speculative ? draftedTokens.get()(decoder, speculative) : new SampledTokens(decoder);
    this.#decoder = decoder;
    this.#scheduler = new Scheduler(decoder, tokenSource, { preemption, kvCache, repeatable });
    this.#watchers = new TokenWatchers(decoder.vocabSize, vocabulary);
  }

  generate(request: GenerateRequest): Promise<Generation> {
    return new Promise((resolve, reject) => {
      const { requestId } = request;
      const { sizes, vocabSize } = this.#decoder;
      if (this.#scheduler.isUnfinished(requestId))
        throw new Error(`generate("${requestId}") while its last turn is still generating.`);
      checkRequest(request, sizes, vocabSize);
      const served = servedRequest(request, sizes.slotCapacity);
      this.#scheduler.add(new Job(served, this.#watchers.of(served), resolve, reject));
      this.#wake();
    });
  }

  release(requestId: string): void {
    if (this.#scheduler.isUnfinished(requestId))
      throw new Error(`release("${requestId}") while it is generating. Abort it first.`);
    this.#scheduler.release(requestId);
    this.#wake();
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) this.#scheduler.abort(id);
  }

  resetCache(weightVersion?: number): void | Promise<void> {
    const reset = () => this.#scheduler.weightsChanged(weightVersion);
    return this.#scheduler.running.size > 0 ? this.#whileInterrupted(reset) : reset();
  }

  /**
   * Calls `change`, which replaces the weights, between two tokens while no pass runs. Then does the same as `resetCache`. If `change`
   * throws, requests continue with the current weights.
   */
  changeWeights(change: () => void | Promise<void>, weightVersion: number): Promise<void> {
    return this.#whileInterrupted(async () => {
      await change();
      this.#scheduler.weightsChanged(weightVersion);
    });
  }

  drawnSoFar(requestIds: string[]): Promise<(DrawnSoFar | undefined)[]> {
    return this.#whileInterrupted(() => this.#scheduler.takeDrawn(requestIds));
  }

  async pause(): Promise<void> {
    this.#paused = true;
    await this.#looping;
  }

  resume(): void {
    this.#paused = false;
    this.#wake();
  }

  async idle(maxMs: number): Promise<void> {
    if (!this.#looping) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, maxMs)));
    await Promise.race([this.#looping, late]);
    clearTimeout(timer);
  }

  async takeStats(): Promise<RolloutStats> {
    return this.#scheduler.takeStats();
  }

  async #loop(): Promise<void> {
    await this.#gatherBurst();
    while (!this.#paused && this.#scheduler.hasUnfinished) {
      this.#hasNews = false;
      if (!(await this.#scheduler.step())) break;
    }
    this.#scheduler.pause();
  }

  /** Starts the scheduling loop unless it is running. If requests arrive while the loop ends, it starts again. */
  #wake(): void {
    this.#hasNews = true;
    if (this.#paused || this.#looping) return;
    this.#looping = this.#loop()
      .catch((error: unknown) => this.#scheduler.fail(error))
      .finally(() => {
        this.#looping = undefined;
        if (this.#hasNews && this.#scheduler.hasUnfinished) this.#wake();
      });
  }

  /**
   * Waits until the requests of a training step have arrived, because each is a separate message. If the server started on the first one,
   * it would waste a pass.
   */
  async #gatherBurst(): Promise<void> {
    let seen = -1;
    while (seen !== this.#scheduler.waiting.length) {
      seen = this.#scheduler.waiting.length;
      await nextTask();
    }
  }

  async #whileInterrupted<T>(work: () => T | Promise<T>): Promise<T> {
    const wasPaused = this.#paused;
    await this.pause();
    try {
      await this.#scheduler.interrupt();
      return await work();
    } finally {
      if (!wasPaused) this.resume();
    }
  }
}

/** Rollout server whose model runs on the WGSL kernels of this repository. */
export class WgslRolloutEngine extends RolloutServer {
  constructor(gpu: Gpu, model: LlamaModel, sizes: DecoderSizes, options: RolloutOptions = {}) {
    super(new Decoder(gpu, model, sizes), options);
  }
}
