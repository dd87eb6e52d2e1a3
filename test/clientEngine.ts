/** A client run without a GPU: its engine returns scripted replies, and a test can make it wait. */

import { resolveTrainConfig } from '../src/grpo/config/resolve.ts';
import type { TrainConfigInput } from '../src/grpo/config/input.ts';
import type { TrainerEngine } from '../src/grpo/types.ts';
import { ClientTrainer } from '../src/extensions/client/index.ts';
import type { ClientLimits } from '../src/extensions/client/settings.ts';
import type { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import type { DrawnSoFar, GenerateRequest, Generation, RolloutEngine, RolloutStats } from '../src/rollout/types.ts';
import { noStats } from '../src/rollout/server/stats.ts';
import { TINY_CONFIG } from './tinyConfig.ts';
import { tokenizer } from './scriptedTurns.ts';
import { stub } from './stub.ts';

/**
 * A rollout engine that answers each request with the result of `says`. If `waits` is true for a request, its first token is shown, and the
 * rest waits for `go` or an abort.
 */
export class TalkingEngine implements RolloutEngine {
  readonly requests: GenerateRequest[] = [];
  /** Ids of requests for which tokens were generated, and which are not released yet. */
  readonly held = new Set<string>();
  paused = false;
  version = 0;
  says: (request: GenerateRequest) => string = () => 'Four.';
  waits: (request: GenerateRequest) => boolean = () => false;
  fails: Error | undefined;
  readonly #waiting = new Map<string, (aborted: boolean) => void>();
  readonly #tokenizer: ChatTokenizer;

  constructor(own = tokenizer) {
    this.#tokenizer = own;
  }

  async generate(request: GenerateRequest): Promise<Generation> {
    this.requests.push(request);
    this.held.add(request.requestId);
    if (this.fails) throw this.fails;
    const all = [...this.#tokenizer.encode(this.says(request)), this.#tokenizer.eosTokenIds[0]];
    const tokenIds = all.slice(0, request.sampling.maxNewTokens);
    request.onTokens?.(tokenIds.slice(0, 1));
    if (this.waits(request)) {
      const aborted = await new Promise<boolean>((resolve) => this.#waiting.set(request.requestId, resolve));
      this.#waiting.delete(request.requestId);
      if (aborted) return this.#generation(tokenIds.slice(0, 1), 'aborted');
    }
    await Promise.resolve();
    request.onTokens?.(tokenIds.slice(1));
    const said = this.says(request);
    const stopString = request.sampling.stop?.find((stop) => said.endsWith(stop));
    if (stopString !== undefined) return { ...this.#generation(tokenIds.slice(0, -1), 'stop_string'), stopString };
    return this.#generation(tokenIds, tokenIds.length < all.length ? 'length' : 'stop');
  }

  #generation(tokenIds: number[], stopReason: Generation['stopReason']): Generation {
    return {
      tokenIds: Uint32Array.from(tokenIds),
      logProbs: Float32Array.from(tokenIds, (_, i) => -1 - i),
      weightVersions: new Uint32Array(tokenIds.length).fill(this.version),
      alternatives: tokenIds.map((tokenId) => [{ tokenId, logProb: -0.5 }]),
      stopReason,
    };
  }

  get underWay(): number {
    return this.#waiting.size;
  }

  go(): void {
    for (const answer of [...this.#waiting.values()]) answer(false);
  }

  abort(requestIds: string[]): void {
    for (const id of requestIds) this.#waiting.get(id)?.(true);
  }

  release(requestId: string): void {
    if (this.#waiting.has(requestId)) throw new Error(`release("${requestId}") while it is generating`);
    this.held.delete(requestId);
  }

  resetCache(version = this.version + 1): void {
    this.version = version;
  }

  pause(): Promise<void> {
    this.paused = true;
    return Promise.resolve();
  }

  resume(): void {
    this.paused = false;
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }

  drawnSoFar(): Promise<(DrawnSoFar | undefined)[]> {
    return Promise.resolve([]);
  }

  takeStats(): Promise<RolloutStats> {
    return Promise.resolve(noStats());
  }
}

/** Creates a run of the client without a model. Its steps cannot train, but everything before the training works. */
export function talkingRun({
  change = {},
  limits = {},
  own = tokenizer,
}: { change?: Partial<TrainConfigInput>; limits?: ClientLimits; own?: ChatTokenizer } = {}) {
  const config = resolveTrainConfig({
    name: 'talking',
    model: { path: 'x' },
    data: { trainBatchSize: 1, maxPromptLength: 200, maxResponseLength: 200 },
    rollout: { n: 2 },
    actor: { ppoMiniBatchSize: 1 },
    ...change,
  });
  const rollout = new TalkingEngine(own);
  const vocabSize = own.vocabSize;
  const model = stub<TrainerEngine['model']>({ name: 'wgsl', config: { ...TINY_CONFIG, vocabSize } });
  const engine = { tokenizer: own, rollout, model };
  const trainer = new ClientTrainer({ config, engine, limits });
  return { trainer, rollout, config, engine };
}
