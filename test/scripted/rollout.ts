/** Rollout of a scripted engine. */

import type { ChatTokenizer } from '../../src/model/tokenizer/chat.ts';
import { nextTask } from '../../src/rollout/agent/yield.ts';
import { noStats } from '../../src/rollout/server/stats.ts';
import type { DrawnSoFar, GenerateRequest, Generation, RolloutEngine, RolloutStats } from '../../src/rollout/types.ts';
import { deferred, type Moment } from './gate.ts';
import type { ScriptedWeights } from './model.ts';

/** The parts of a scripted engine that its rollout uses. */
interface RolloutDevice {
  readonly tokenizer: ChatTokenizer;
  throwIfLost(): void;
  at(moment: Moment, number: number): Promise<void> | undefined;
  sayingsOf(request: GenerateRequest, weights: ScriptedWeights): number[];
}

/** A turn in progress. */
interface Turn {
  tokenIds: number[];
  logProbs: number[];
  versions: number[];
  abort: () => void;
  aborted: Promise<void>;
  isAborted: boolean;
}

/**
 * Generates the first half of a turn immediately. The second half follows when the gate lets the turn pass, one token per pass, with the
 * weights in use by then.
 */
export class ScriptedRollout implements RolloutEngine {
  readonly #device: RolloutDevice;
  readonly #weights: ScriptedWeights;
  readonly #turns = new Map<string, Turn>();
  #version = 0;
  #begun = 0;
  #stats = noStats();
  #paused: { over: Promise<void>; resume: () => void } | undefined;
  #pass: Promise<void> | undefined;
  #idle: (() => void)[] = [];
  /** Ids of requests for which tokens were generated, and which are not released yet. */
  readonly held = new Set<string>();

  constructor(weights: ScriptedWeights, device: RolloutDevice) {
    [this.#weights, this.#device] = [weights, device];
  }

  async generate(request: GenerateRequest): Promise<Generation> {
    const { requestId, sampling, drawn } = request;
    this.#device.throwIfLost();
    this.held.add(requestId);
    const { promise: aborted, resolve } = deferred<void>();
    const turn: Turn = {
      ...{ tokenIds: [...(drawn?.tokenIds ?? [])], logProbs: [...(drawn?.logProbs ?? [])] },
      ...{ versions: [...(drawn?.weightVersions ?? [])], aborted, isAborted: false },
      abort: () => {
        turn.isAborted = true;
        resolve();
      },
    };
    this.#turns.set(requestId, turn);
    this.#stats.prefillTokens += request.contextIds.length;
    try {
      await this.#paused?.over;
      const begun = this.#device.sayingsOf(request, this.#weights);
      // A turn that was restored from a checkpoint has its first half already.
      if (turn.tokenIds.length === 0) this.#draw(turn, request, begun.slice(0, Math.ceil(begun.length / 2)));
      // A request for top log-probs only evaluates a position of a turn that has ended, so the gate does not hold it.
      if (!sampling.topLogprobs) await Promise.race([this.#device.at('turn', ++this.#begun), aborted]);
      await this.#drawRest(turn, request);
      return this.#generation(turn, sampling, request.contextIds);
    } finally {
      this.#turns.delete(requestId);
      if (this.#turns.size === 0) for (const isIdle of this.#idle.splice(0)) isIdle();
    }
  }

  /** Generates the rest of a turn, one token per pass, each with the weights in use at that pass. */
  async #drawRest(turn: Turn, request: GenerateRequest): Promise<void> {
    let all: number[] = [];
    let state: number | undefined;
    do {
      await Promise.race([this.#nextPass(), turn.aborted]);
      this.#device.throwIfLost();
      if (turn.isAborted) return;
      if (state !== this.#weights.state) all = this.#device.sayingsOf(request, this.#weights);
      ({ state } = this.#weights);
      this.#draw(turn, request, all.slice(0, turn.tokenIds.length + 1));
    } while (turn.tokenIds.length < all.length);
  }

  /**
   * Resolves at the next pass at which the engine is not paused. All turns have the same passes, so which turn ends first depends only on
   * the turns' lengths.
   */
  #nextPass(): Promise<void> {
    this.#pass ??= (async () => {
      do {
        await this.#paused?.over;
        await nextTask();
      } while (this.#paused);
      this.#pass = undefined;
    })();
    return this.#pass;
  }

  /** Generates the tokens of `all` that the turn does not have yet, with the current weights. */
  #draw(turn: Turn, { contextIds, onTokens }: GenerateRequest, all: readonly number[]): void {
    const fresh = all.slice(turn.tokenIds.length);
    for (const token of fresh) {
      const before = turn.tokenIds.at(-1) ?? contextIds[contextIds.length - 1];
      const position = contextIds.length + turn.tokenIds.length - 1;
      turn.logProbs.push(this.#weights.logProb(before, position, token));
      turn.tokenIds.push(token);
      turn.versions.push(this.#version);
    }
    if (fresh.length > 0) onTokens?.(fresh);
    this.#stats.generatedTokens += fresh.length;
    this.#stats.decodeSteps++;
    this.#stats.liveRows++;
  }

  #generation(turn: Turn, sampling: GenerateRequest['sampling'], contextIds: Uint32Array): Generation {
    const { tokenIds, logProbs, versions, isAborted } = turn;
    const before = (i: number) => (i === 0 ? contextIds[contextIds.length - 1] : tokenIds[i - 1]);
    const at = (i: number) => [before(i), contextIds.length + i - 1] as const;
    const { topLogprobs = 0, entropy, stopTokenIds } = sampling;
    const stopped = stopTokenIds.includes(tokenIds.at(-1) ?? -1);
    return {
      tokenIds: Uint32Array.from(tokenIds),
      logProbs: Float32Array.from(logProbs),
      weightVersions: Uint32Array.from(versions),
      ...(entropy && { entropies: Float32Array.from(tokenIds, (_, i) => this.#weights.entropy(...at(i))) }),
      ...(topLogprobs > 0 && {
        alternatives: tokenIds.map((_, i) =>
          this.#weights.alternatives(...at(i), topLogprobs, this.#device.tokenizer.vocabSize),
        ),
      }),
      stopReason: isAborted ? 'aborted' : stopped ? 'stop' : 'length',
    };
  }

  release(requestId: string): void {
    this.held.delete(requestId);
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) this.#turns.get(id)?.abort();
  }

  resetCache(version = this.#version + 1): void {
    this.#version = version;
  }

  async pause(): Promise<void> {
    const { promise: over, resolve: resume } = deferred<void>();
    this.#paused ??= { over, resume };
  }

  resume(): void {
    this.#paused?.resume();
    this.#paused = undefined;
  }

  idle(): Promise<void> {
    if (this.#turns.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idle.push(resolve));
  }

  async drawnSoFar(requestIds: string[]): Promise<(DrawnSoFar | undefined)[]> {
    return requestIds.map((id) => {
      const turn = this.#turns.get(id);
      if (!turn) return undefined;
      const [tokenIds, weightVersions] = [Uint32Array.from(turn.tokenIds), Uint32Array.from(turn.versions)];
      return { tokenIds, logProbs: Float32Array.from(turn.logProbs), weightVersions };
    });
  }

  async takeStats(): Promise<RolloutStats> {
    const stats = this.#stats;
    this.#stats = noStats();
    return stats;
  }
}
