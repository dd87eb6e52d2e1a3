/**
 * A rollout engine without a model: each turn takes a time that the test sets, and its tokens record the version of the weights that
 * sampled them.
 */

import { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import type { CheckpointEngine } from '../src/grpo/pipeline/types.ts';
import type { GenerateRequest, Generation, RolloutEngine, RolloutStats } from '../src/rollout/types.ts';
import { noStats } from '../src/rollout/server/stats.ts';
import { keyedRng } from '../src/tasks/random.ts';
import { GSM8K_TOKENIZER } from './gsm8kTokenizer.ts';

const { tokenizer: tokenizerJson, config } = GSM8K_TOKENIZER;

/** Returns the milliseconds that a turn takes, or a promise that the turn waits for. */
export type Pace = (request: GenerateRequest) => number | Promise<void>;

/** Samples two tokens per turn: the first with the weights at the start of the turn, the second with the weights at its end. */
export class PacedEngine implements RolloutEngine {
  readonly tokenizer = new ChatTokenizer(tokenizerJson, config);
  /** Version of the weights in use. */
  version = 0;
  /** Entries: [version, requests in flight], one at each change of the weights. */
  changes: [number, number][] = [];
  underWay = 0;
  readonly released: string[] = [];
  #paused: Promise<void> | undefined;
  #go = () => {};
  readonly #aborted = new Set<string>();
  readonly #pace: Pace;
  #awaited: { version: number; go: () => void }[] = [];

  constructor(pace: Pace) {
    this.#pace = pace;
  }

  /** Resolves once the engine uses the weights of this version or newer ones. */
  reaches(version: number): Promise<void> {
    return new Promise((go) => {
      this.#awaited.push({ version, go });
      this.#letGo();
    });
  }

  #letGo(): void {
    for (const { version, go } of this.#awaited) if (this.version >= version) go();
  }

  async generate(request: GenerateRequest): Promise<Generation> {
    this.underWay++;
    await this.#paused;
    const first = this.version;
    const pace = this.#pace(request);
    await (typeof pace === 'number' ? new Promise((resolve) => setTimeout(resolve, pace)) : pace);
    await this.#paused;
    this.underWay--;
    // The reply of a sample depends only on its key.
    const id = 20 + Math.floor(100 * keyedRng('paced', ...request.key).uniform());
    return {
      tokenIds: Uint32Array.of(id, this.tokenizer.eosTokenIds[0]),
      logProbs: Float32Array.of(-1, -0.5),
      weightVersions: Uint32Array.of(first, this.version),
      stopReason: this.#aborted.has(request.requestId) ? 'aborted' : 'stop',
    };
  }

  release(requestId: string): void {
    this.released.push(requestId);
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) this.#aborted.add(id);
  }

  resetCache(version = this.version + 1): void {
    this.version = version;
    this.changes.push([version, this.underWay]);
    this.#letGo();
  }

  async pause(): Promise<void> {
    this.#paused ??= new Promise((resolve) => (this.#go = resolve));
  }

  resume(): void {
    this.#paused = undefined;
    this.#go();
  }

  async idle(): Promise<void> {}

  async drawnSoFar(ids: string[]): Promise<undefined[]> {
    return ids.map(() => undefined);
  }

  async takeStats(): Promise<RolloutStats> {
    return noStats();
  }
}

/** Returns a checkpoint engine (weight transfer) as for a separate copy of the weights, whose transfers take no time. */
export const copiedWeights = (engine: PacedEngine): CheckpointEngine => ({
  backend: 'copy',
  async updateWeights(version) {
    await Promise.resolve();
    engine.resetCache(version);
    return { version, bytes: 1, seconds: 0, overlapSeconds: 0 };
  },
});
