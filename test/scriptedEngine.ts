/**
 * An engine for tests of the code around an engine: deterministic bit for bit, with calls of microseconds. It waits only if a test holds
 * it. Its weights and moments depend on every batch so far and on their order. Its replies depend on the weights and on the request's key.
 *
 * The engine learns one thing. With a probability that rises with `model.norm.weight[0]` it replies with the turns that `solve` returns for a
 * prompt, otherwise it guesses a number. Updates raise that weight if samples with solved answers had higher advantages, so a reward curve
 * rises.
 */

import { DeviceLostError } from '../src/errors.ts';
import type { CheckpointEngine } from '../src/grpo/pipeline/types.ts';
import type { TrainerEngine } from '../src/grpo/types.ts';
import type { ModelConfig } from '../src/model/config.ts';
import type { PackedBatch, TensorMap } from '../src/model/engine.ts';
import { initWeights } from '../src/model/params.ts';
import type { ChatTokenizer } from '../src/model/tokenizer/chat.ts';
import type { GenerateRequest } from '../src/rollout/types.ts';
import { deferred, type Gate } from './scripted/gate.ts';
import { copyOf, SCRIPTED_CONFIG, ScriptedModel, ScriptedWeights, unit } from './scripted/model.ts';
import { ScriptedRollout } from './scripted/rollout.ts';

/** Options of the engine. */
export interface ScriptedOptions {
  tokenizer: ChatTokenizer;
  /** Checkpoint to start from. Default: SCRIPTED_CONFIG, with new weights. */
  config?: ModelConfig;
  weights?: TensorMap;
  /** Returns the turns that earn the reward for a prompt; undefined if unknown. Default: always undefined. */
  solve?: (prompt: string) => readonly string[] | undefined;
  /** Returns the text of the reply to a request; undefined = the engine chooses the reply. */
  says?: (request: GenerateRequest) => string | undefined;
  /** Gate with which a test holds the engine or makes it fail. Default: the engine never waits. */
  gate?: Gate;
  /** True if rollout has its own copy of the weights, which `checkpointEngine` updates. */
  hasCopy?: boolean;
  withReference?: boolean;
}

/** Approximate number of tokens in a turn with a tool call, including the tool's answer. */
const TOOL_TURN = 30;

export class ScriptedEngine implements TrainerEngine {
  readonly tokenizer: ChatTokenizer;
  readonly model: ScriptedModel;
  readonly rollout: ScriptedRollout;
  readonly reference?: ScriptedModel;
  readonly judge?: ScriptedRollout;
  readonly checkpointEngine?: CheckpointEngine;
  /** Resolves when the device is lost. */
  readonly lost: Promise<DeviceLostError>;
  readonly #options: ScriptedOptions;
  readonly #turns = new Map<string, number[]>();
  readonly #solved = new Map<string, readonly string[] | undefined>();
  readonly #lose: (error: DeviceLostError) => void;
  #isLost: DeviceLostError | undefined;

  constructor(options: ScriptedOptions) {
    const { tokenizer, config = SCRIPTED_CONFIG, weights = initWeights(config, 1), withReference, hasCopy } = options;
    [this.#options, this.tokenizer] = [options, tokenizer];
    const { promise, resolve } = deferred<DeviceLostError>();
    [this.lost, this.#lose] = [promise, resolve];
    this.model = new ScriptedModel(config, weights, this);
    const rolloutWeights = hasCopy ? new ScriptedWeights(weights) : this.model.weights;
    this.rollout = new ScriptedRollout(rolloutWeights, this);
    if (hasCopy)
      this.checkpointEngine = {
        backend: 'copy',
        updateWeights: async (version) => {
          rolloutWeights.tensors = copyOf(this.model.weights.tensors);
          rolloutWeights.changed();
          this.rollout.resetCache(version);
          return { version, bytes: 1, seconds: 0, overlapSeconds: 0 };
        },
      };
    if (!withReference) return;
    this.reference = new ScriptedModel(config, weights, this);
    this.judge = new ScriptedRollout(this.reference.weights, this);
  }

  /** Loses the device: current and future calls reject. */
  lose(error = new DeviceLostError('unknown', 'The test took it.')): void {
    this.#isLost ??= error;
    this.#lose(error);
  }

  async untilLost(): Promise<never> {
    throw await this.lost;
  }

  throwIfLost(): void {
    if (this.#isLost) throw this.#isLost;
  }

  /** Waits if the test holds the engine at this moment; returns undefined if it does not. */
  at(...moment: Parameters<Gate['at']>): Promise<void> | undefined {
    this.throwIfLost();
    const passed = this.#options.gate?.at(...moment)?.catch((error: unknown) => {
      if (error instanceof DeviceLostError) this.lose(error);
      throw error;
    });
    return passed && Promise.race([passed, this.untilLost()]);
  }

  /** Returns the tokens of the turn that answers a request, never more than the request allows. */
  sayingsOf(request: GenerateRequest, weights: ScriptedWeights): number[] {
    const { contextIds, promptLength, sampling } = request;
    const turns = contextIds.subarray(promptLength).reduce((n, id) => n + Number(this.#endsTurn(id)), 0);
    const text = this.#options.says?.(request) ?? this.#reply(request, turns, weights);
    const all = this.#turnOf(text);
    const end = all.findIndex((id) => sampling.stopTokenIds.includes(id));
    return all.slice(0, Math.min(end < 0 ? Infinity : end + 1, sampling.maxNewTokens));
  }

  /** Returns the tokens of a text followed by an end token. Cached, because encoding takes longer than everything else in this engine. */
  #turnOf(text: string): number[] {
    const known = this.#turns.get(text) ?? [...this.tokenizer.encode(text), this.tokenizer.eosTokenIds[0]];
    this.#turns.set(text, known);
    return known;
  }

  readonly #endsTurn = (id: number): boolean => this.tokenizer.eosTokenIds.includes(id);

  #reply({ contextIds, promptLength, key, sampling }: GenerateRequest, turn: number, weights: ScriptedWeights): string {
    const prompt = contextIds.subarray(0, promptLength);
    const luck = sampling.temperature > 0 ? unit(...key, -1) : unit(...prompt);
    const solution = luck < weights.chance ? this.#solutionOf(prompt) : undefined;
    if (!solution) return `#### ${Math.floor(50 * unit(weights.state, ...key, turn))}`;
    const isShort = sampling.maxNewTokens < solution.length * TOOL_TURN;
    return isShort && turn === 0 ? (solution.at(-1) ?? '') : (solution[turn] ?? solution.at(-1) ?? '');
  }

  #solutionOf(prompt: Uint32Array): readonly string[] | undefined {
    const key = prompt.join();
    if (!this.#solved.has(key)) this.#solved.set(key, this.#options.solve?.(this.tokenizer.decode(prompt)));
    return this.#solved.get(key);
  }

  /** True if sample `s` of a batch ends with the last turn that `solve` returns for its prompt. */
  isSolved(batch: PackedBatch, s: number): boolean {
    const [from, to] = [batch.seqStart[s], batch.seqStart[s + 1]];
    const row = batch.headRows[batch.entryRow[from]];
    const [a, b, c, d] = batch.ranges.subarray(4 * row, 4 * row + 4);
    const prompt = Uint32Array.of(...batch.tokens.subarray(a, b), ...batch.tokens.subarray(c, d));
    const end = this.#solutionOf(prompt)?.at(-1);
    if (end === undefined) return false;
    const tokens = this.#turnOf(end);
    return tokens.every((token, i) => token === batch.targets[to - tokens.length + i]);
  }
}
