/**
 * Compares decoding with and without draft tokens (speculative decoding), in turn in one process, on the recipe's model with prompts seen
 * before. 'greedy' is an evaluation of an unchanged model, in which the history predicts every token: the most that guesses can gain.
 * 'sampled' uses a low temperature after other samples of the same prompts, as late in training. End tokens are off, so that every sequence
 * has its full length.
 */

import type { Gpu } from '../src/gpu/device.ts';
import type { LlamaModel } from '../src/model/llama.ts';
import { loadModel } from '../src/model/weights/load.ts';
import { modelTokenizer } from '../src/model/tokenizer/modelTokenizer.ts';
import { WgslRolloutEngine } from '../src/rollout/server/server.ts';
import type { GenerateRequest } from '../src/rollout/types.ts';
import type { Report } from './report.ts';
import type { StepInputs } from './step.ts';

const SETTINGS = { greedy: 0, sampled: 0.4 };
const NEW_TOKENS = 48;
const DRAFT = 8;
/** Warm-up rounds, which fill the history of drafts and compile kernels. */
const WARM_UPS = 2;

type Result = NonNullable<Report['speculative']>[number];

export async function benchSpeculative(gpu: Gpu, { loaded, task }: StepInputs, quick: boolean): Promise<Result[]> {
  const tokenizer = modelTokenizer(loaded);
  const problems = await Promise.all(Array.from({ length: 16 }, async (_, i) => task.train(i, 1)));
  const prompts = problems.map(({ messages }) => tokenizer.encodeChat(messages));
  const longest = Math.max(...prompts.map((p) => p.length));
  const model = await loadModel(gpu, loaded.config, longest + NEW_TOKENS, loaded.weights);
  const results: Result[] = [];
  for (const [setting, temperature] of Object.entries(SETTINGS))
    for (const sequences of quick ? [1] : [1, 4, 16]) {
      const bench = new Pair(gpu, model, prompts.slice(0, sequences), longest, temperature);
      results.push({ setting, sequences, ...(await bench.measure(quick ? 1 : 4)) });
    }
  return results;
}

/** Runs the same requests with and without speculative decoding. */
class Pair {
  readonly #plain: WgslRolloutEngine;
  readonly #guessing: WgslRolloutEngine;
  readonly #prompts: Uint32Array[];
  readonly #temperature: number;

  constructor(gpu: Gpu, model: LlamaModel, prompts: Uint32Array[], maxPromptLength: number, temperature: number) {
    const n = prompts.length;
    const sizes = { maxNumSeqs: n, slotCapacity: NEW_TOKENS, maxPrompts: n, maxPromptLength, maxBatchedTokens: 512 };
    const speculative = { maxDraftTokens: DRAFT, minNgram: 2, history: 8, adapt: false };
    this.#plain = new WgslRolloutEngine(gpu, model, sizes);
    this.#guessing = new WgslRolloutEngine(gpu, model, { ...sizes, verifyRows: n * (1 + DRAFT) }, { speculative });
    this.#prompts = prompts;
    this.#temperature = temperature;
  }

  async measure(rounds: number): Promise<Omit<Result, 'setting' | 'sequences'>> {
    for (let round = 0; round < WARM_UPS; round++) await this.#both(round);
    await this.#guessing.takeStats();
    let [plainMs, guessingMs] = [Infinity, Infinity];
    for (let round = 0; round < rounds; round++) {
      const [plain, guessing] = await this.#both(WARM_UPS + round);
      plainMs = Math.min(plainMs, plain);
      guessingMs = Math.min(guessingMs, guessing);
    }
    const { acceptedTokens, draftTokens } = await this.#guessing.takeStats();
    const acceptance = draftTokens === 0 ? 0 : acceptedTokens / draftTokens;
    return { plainMs, guessingMs, acceptance, guessed: draftTokens / rounds / this.#prompts.length };
  }

  /** Returns the milliseconds of a round without and with draft tokens. Throws if the two sample different tokens. */
  async #both(round: number): Promise<[number, number]> {
    const [plain, plainMs] = await this.#generate(this.#plain, round);
    const [guessed, guessingMs] = await this.#generate(this.#guessing, round);
    if (plain !== guessed) throw new Error('Decoding with guesses drew other tokens than without.');
    return [plainMs, guessingMs];
  }

  async #generate(engine: WgslRolloutEngine, round: number): Promise<[tokens: string, ms: number]> {
    const started = performance.now();
    const generations = await Promise.all(this.#prompts.map((_, p) => engine.generate(this.#request(p, round))));
    const ms = performance.now() - started;
    for (const p of this.#prompts.keys()) engine.release(`${p}`);
    return [generations.map(({ tokenIds }) => tokenIds.join()).join(';'), ms];
  }

  #request(p: number, round: number): GenerateRequest {
    const contextIds = this.#prompts[p];
    const cuts = { topK: 0, topP: 1, minP: 0, maxNewTokens: NEW_TOKENS, stopTokenIds: [] };
    return {
      requestId: `${p}`,
      contextIds,
      promptLength: contextIds.length,
      key: [round, p],
      sampling: { temperature: this.#temperature, ...cuts },
    };
  }
}
