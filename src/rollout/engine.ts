/**
 * The rollout engine in server mode: requests of any length arrive at any time, every pass admits what fits, decodes all
 * live sequences in one batch, and hands a finished one back at once. A prompt is computed once for all that share it;
 * later turns of a sample continue from its own slot.
 *
 * The scheduler decides only when something is computed. What a sample draws depends on its key, its tokens and the
 * weights (kernels/sample.wgsl), so the schedule never shows in the tokens.
 */

import type { Gpu } from '../gpu/device.ts';
import type { LlamaModel } from '../model/forward.ts';
import { Decoder, type DecoderSizes, type Draw, type PrefillRows, STATE_WIDTH } from './decoder.ts';
import { type Prefix, PrefixCache } from './kvCache.ts';
import { nextTask } from './startLine.ts';
import type { GenerateRequest, Generation, RolloutEngine, RolloutStats } from './types.ts';

/** A sample that holds a slot, between its first turn and `release`. */
interface Sequence {
  slot: number;
  prefix: Prefix | undefined;
  /** Tokens after the prompt whose keys and values are in the slot. */
  ownTokens: number[];
}

interface Running {
  request: GenerateRequest;
  resolve: (generation: Generation) => void;
  reject: (error: unknown) => void;
  sequence: Sequence;
  /** Own tokens of the context that still have to be prefilled start here. */
  next: number;
  phase: 'prefill' | 'decode';
}

interface Waiting {
  request: GenerateRequest;
  resolve: (generation: Generation) => void;
  reject: (error: unknown) => void;
}

export class WgslRolloutEngine implements RolloutEngine {
  readonly #decoder: Decoder;
  readonly #prefixes: PrefixCache;
  readonly #sequences = new Map<string, Sequence>();
  readonly #freeSlots: number[];
  readonly #waiting: Waiting[] = [];
  readonly #running = new Map<string, Running>();
  readonly #aborted = new Set<string>();
  #stats = emptyStats();
  #firstDraws = 0;
  #busy = false;
  readonly #pace = { stepMs: 1, readMs: 0.5, finishRate: 0.1 };

  constructor(gpu: Gpu, model: LlamaModel, sizes: DecoderSizes) {
    this.#decoder = new Decoder(gpu, model, sizes);
    this.#prefixes = new PrefixCache(sizes.maxPrompts, sizes.maxPromptLength);
    this.#freeSlots = Array.from({ length: sizes.maxSlots }, (_, i) => sizes.maxSlots - 1 - i);
  }

  generate(request: GenerateRequest): Promise<Generation> {
    return new Promise((resolve, reject) => {
      this.#check(request);
      this.#waiting.push({ request, resolve, reject });
      this.#wake();
    });
  }

  release(requestId: string): void {
    const sequence = this.#sequences.get(requestId);
    if (!sequence) return;
    if (this.#running.has(requestId))
      throw new Error(`release("${requestId}") while it is generating; abort it first.`);
    if (sequence.prefix) this.#prefixes.release(sequence.prefix);
    this.#sequences.delete(requestId);
    this.#freeSlots.push(sequence.slot);
    this.#wake();
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) {
      const at = this.#waiting.findIndex((w) => w.request.requestId === id);
      if (at >= 0) this.#waiting.splice(at, 1)[0].resolve(emptyGeneration('aborted'));
      else if (this.#running.has(id)) this.#aborted.add(id);
    }
  }

  resetCache(): void {
    this.#decoder.weightsChanged();
    this.#prefixes.reset();
    for (const sequence of this.#sequences.values()) {
      if (sequence.prefix) this.#prefixes.release(sequence.prefix);
      sequence.prefix = undefined;
      sequence.ownTokens = [];
    }
  }

  async takeStats(): Promise<RolloutStats> {
    const stats = {
      ...this.#stats,
      wastedRows: this.#stats.liveRows - (this.#stats.generatedTokens - this.#firstDraws),
    };
    this.#stats = emptyStats();
    this.#firstDraws = 0;
    return stats;
  }

  #check({ contextIds, promptLength, sampling }: GenerateRequest): void {
    const { slotCapacity } = this.#decoder.sizes;
    const own = contextIds.length - promptLength;
    if (promptLength < 1 || own < 0)
      throw new RangeError(`promptLength is ${promptLength} of a context of ${contextIds.length} tokens.`);
    if (own >= slotCapacity)
      throw new RangeError(`A context has ${own} tokens after its prompt; a slot holds ${slotCapacity}.`);
    if (sampling.stopTokenIds.length > 4)
      throw new RangeError(`${sampling.stopTokenIds.length} stop token ids were given; at most 4 are allowed.`);
  }

  #wake(): void {
    if (this.#busy) return;
    this.#busy = true;
    void this.#loop()
      .catch((error: unknown) => this.#fail(error))
      .finally(() => {
        this.#busy = false;
        if (this.#canWork()) this.#wake();
      });
  }

  #canWork(): boolean {
    const admissible = this.#waiting.some((w) => this.#sequences.has(w.request.requestId));
    return this.#running.size > 0 || admissible || (this.#waiting.length > 0 && this.#freeSlots.length > 0);
  }

  /** A device error reaches everyone who waits. */
  #fail(error: unknown): void {
    for (const { reject } of [...this.#running.values(), ...this.#waiting]) reject(error);
    this.#running.clear();
    this.#waiting.length = 0;
  }

  async #loop(): Promise<void> {
    await this.#gatherBurst();
    while (this.#canWork()) {
      this.#admit();
      if (this.#running.size === 0) return; // all slots are held by samples that wait for something else
      const started = performance.now();
      const passes = this.#prefillPass();
      const steps = this.#decodeSteps();
      const submitted = performance.now();
      const state = await this.#decoder.readState();
      await this.#collect(state);
      if (passes === 0 && steps > 0) this.#learnPace(performance.now() - started, submitted - started, steps);
    }
  }

  /** Requests of one step arrive as separate messages; starting on the first alone would waste a pass. */
  async #gatherBurst(): Promise<void> {
    let seen = -1;
    while (seen !== this.#waiting.length) {
      seen = this.#waiting.length;
      await nextTask();
    }
  }

  /** Gives waiting requests their slots and prefixes, first come first served. */
  #admit(): void {
    for (let i = 0; i < this.#waiting.length;) {
      const running = this.#tryStart(this.#waiting[i]);
      if (running) {
        this.#running.set(running.request.requestId, running);
        this.#waiting.splice(i, 1);
      } else i++;
    }
  }

  #tryStart({ request, resolve, reject }: Waiting): Running | undefined {
    const { requestId, contextIds, promptLength } = request;
    let sequence = this.#sequences.get(requestId);
    if (!sequence) {
      if (this.#freeSlots.length === 0) return undefined;
      sequence = { slot: this.#freeSlots.pop()!, prefix: undefined, ownTokens: [] };
      this.#sequences.set(requestId, sequence);
    }
    sequence.prefix ??= this.#prefixes.acquire(contextIds.subarray(0, promptLength));
    if (!sequence.prefix) return undefined;
    const own = contextIds.subarray(promptLength);
    const known = commonLength(own, sequence.ownTokens);
    // The last context token is always run again: its row gives the logits of the first draw.
    const next = Math.min(known, Math.max(0, own.length - 1));
    sequence.ownTokens = [...own];
    this.#stats.cachedTokens += next;
    this.#arm(request, sequence);
    return { request, resolve, reject, sequence, next, phase: 'prefill' };
  }

  #arm({ contextIds, promptLength, key, sampling }: GenerateRequest, { slot, prefix }: Sequence): void {
    const room = this.#decoder.sizes.slotCapacity - (contextIds.length - promptLength);
    this.#decoder.setSlot(slot, {
      prefixStart: this.#decoder.prefixStart(prefix!.index),
      promptLength,
      ownStart: this.#decoder.ownStart(slot),
      contextLength: contextIds.length,
      key,
      sampling: { ...sampling, maxNewTokens: Math.max(1, Math.min(sampling.maxNewTokens, room)) },
    });
  }

  /** Records one pass over new context tokens, at most maxBatchedTokens of them. Returns how many passes it recorded. */
  #prefillPass(): number {
    const pending = [...this.#running.values()].filter((r) => r.phase === 'prefill');
    if (pending.length === 0) return 0;
    const rows: PrefillRows = { tokens: [], positions: [], kvRows: [], ranges: [] };
    const lastRow = new Map<Prefix, number>(); // row of the pass that holds a prompt's last token
    const draws: Draw[] = [];
    for (const running of pending) {
      const row = this.#addRows(rows, running, lastRow);
      if (row === undefined) continue;
      draws.push({ slot: running.sequence.slot, row });
      running.phase = 'decode';
    }
    if (rows.tokens.length === 0) throw new Error('A prefill pass has no rows; the scheduler cannot make progress.');
    this.#stats.prefillTokens += rows.tokens.length;
    this.#decoder.prefill(rows, draws);
    this.#stats.generatedTokens += draws.length;
    this.#firstDraws += draws.length;
    return 1;
  }

  /** Adds what a request still needs; returns its last row once everything is in this or an earlier pass. */
  #addRows(rows: PrefillRows, running: Running, lastRow: Map<Prefix, number>): number | undefined {
    const { request, sequence } = running;
    const prefix = sequence.prefix!;
    const promptLength = prefix.tokens.length;
    const prefixStart = this.#decoder.prefixStart(prefix.index);
    const room = () => this.#decoder.sizes.maxBatchedTokens - rows.tokens.length;
    const add = (token: number, position: number, kvRow: number, range: number[]) => {
      rows.tokens.push(token);
      rows.positions.push(position);
      rows.kvRows.push(kvRow);
      rows.ranges.push(...range);
      return rows.tokens.length - 1;
    };
    const addPrompt = (p: number) =>
      add(prefix.tokens[p], p, prefixStart + p, [0, 0, prefixStart, prefixStart + p + 1]);

    const before = prefix.computed;
    while (prefix.computed < promptLength && room() > 0) lastRow.set(prefix, addPrompt(prefix.computed++));
    if (prefix.computed < promptLength) return undefined;
    if (before === promptLength) this.#stats.cachedTokens += promptLength;
    const own = request.contextIds.subarray(promptLength);
    if (own.length === 0) {
      // A prompt that is already cached: its last row alone is run again, for the logits.
      if (!lastRow.has(prefix) && room() > 0) lastRow.set(prefix, addPrompt(promptLength - 1));
      return lastRow.get(prefix);
    }
    const ownStart = this.#decoder.ownStart(sequence.slot);
    let row: number | undefined;
    while (running.next < own.length && room() > 0) {
      const t = running.next++;
      const range = [prefixStart, prefixStart + promptLength, ownStart, ownStart + t + 1];
      row = add(own[t], promptLength + t, ownStart + t, range);
    }
    return running.next === own.length ? row : undefined;
  }

  /** Records as many decode steps as pay before the next look at the flags. Returns how many. */
  #decodeSteps(): number {
    const live = [...this.#running.values()].filter((r) => r.phase === 'decode');
    if (live.length === 0) return 0;
    // Neighbours in a batch that share a prompt read the same keys.
    live.sort((a, b) => a.sequence.prefix!.index - b.sequence.prefix!.index || a.sequence.slot - b.sequence.slot);
    this.#decoder.setLive(live.map((r) => r.sequence.slot));
    const steps = this.#chunkLength();
    for (let s = 0; s < steps; s++) this.#decoder.decodeStep();
    this.#stats.decodeSteps += steps;
    this.#stats.liveRows += steps * live.length;
    return steps;
  }

  /**
   * Steps per read-back: a read costs readMs, a step too many costs finishRate x stepMs / 2 on average, so the sum is
   * least at sqrt(2 readMs / (stepMs finishRate)). Wasted rows are kept below about 5%.
   */
  #chunkLength(): number {
    const { stepMs, readMs, finishRate } = this.#pace;
    const best = Math.sqrt((2 * readMs) / (Math.max(stepMs, 0.01) * Math.max(finishRate, 1e-3)));
    const bound = 1 + 0.1 / Math.max(finishRate, 1e-3);
    return Math.max(1, Math.min(32, Math.round(Math.min(best, bound))));
  }

  #learnPace(total: number, submit: number, steps: number): void {
    this.#pace.stepMs += 0.2 * ((total - submit) / steps - this.#pace.stepMs);
  }

  /** Hands back every sequence that stopped, was aborted, or is full. */
  async #collect(state: Uint32Array): Promise<void> {
    const live = [...this.#running.values()].filter((r) => r.phase === 'decode');
    const ended = live.filter(
      ({ sequence, request }) => state[sequence.slot * STATE_WIDTH + 3] !== 0 || this.#aborted.has(request.requestId),
    );
    this.#pace.finishRate += 0.05 * (ended.length / Math.max(live.length, 1) - this.#pace.finishRate);
    if (ended.length === 0) return;
    const counts = ended.map(({ sequence: { slot } }) => ({ slot, count: state[slot * STATE_WIDTH + 2] }));
    const drawn = await this.#decoder.readDrawn(counts);
    ended.forEach((running, i) => {
      const { request, sequence } = running;
      const flag = state[sequence.slot * STATE_WIDTH + 3];
      const stopReason = flag === 1 ? 'stop' : flag === 2 ? 'length' : 'aborted';
      const { tokenIds, logProbs, logMass } = drawn[i];
      this.#running.delete(request.requestId);
      this.#aborted.delete(request.requestId);
      this.#stats.generatedTokens += tokenIds.length - 1; // the first was counted by the prefill pass
      // Every drawn token but the last has been fed, so its keys and values are in the slot.
      for (const id of tokenIds.subarray(0, -1)) sequence.ownTokens.push(id);
      const cut = logMass.some((m) => m !== 0);
      running.resolve({ tokenIds, logProbs, ...(cut && { logMass }), stopReason });
    });
  }
}

function commonLength(a: Uint32Array, b: number[]): number {
  let n = 0;
  while (n < a.length && n < b.length && a[n] === b[n]) n++;
  return n;
}

function emptyStats(): RolloutStats {
  return { generatedTokens: 0, prefillTokens: 0, cachedTokens: 0, decodeSteps: 0, wastedRows: 0, liveRows: 0 };
}

function emptyGeneration(stopReason: Generation['stopReason']): Generation {
  return { tokenIds: new Uint32Array(0), logProbs: new Float32Array(0), stopReason };
}
