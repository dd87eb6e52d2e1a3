/** A tiny engine, generation requests, and policy updates, for tests of rollout during training. */
import type { ModelEngine, TensorMap, TrainLoss } from '../../src/model/engine.ts';
import { packGroups } from '../../src/model/packing.ts';
import { initWeights } from '../../src/model/params.ts';
import type { GenerateRequest, Generation, RolloutEngine } from '../../src/rollout/types.ts';
import { gsm8kTokenizer } from '../gsm8kTokenizer.ts';
import type { EngineSpec } from '../../src/workers/engineSpec.ts';
import { recipeSpec } from '../recipeSpec.ts';
import { loraOf, tinyConfig } from './tinyModel.ts';

const { tokenizer: tokenizerJson, config: tokenizerConfigJson } = gsm8kTokenizer;
/** All sizes are multiples of 8, so that matrix products read packed weights directly. */
export const config = { ...tinyConfig, vocabSize: 512, hiddenSize: 32, headDim: 8, intermediateSize: 40 };

export const lora = loraOf(4);

export const specOf = (more: Partial<EngineSpec> = {}): EngineSpec => ({
  engine: 'wgsl',
  config,
  weights: initWeights(config, 5),
  tokenizerJson,
  tokenizerConfigJson,
  maxTokenLen: 64,
  maxPositions: 64,
  rollout: { maxNumSeqs: 4, slotCapacity: 40, maxPrompts: 4, maxPromptLength: 16, maxBatchedTokens: 64 },
  ...more,
});

const samples = [7, 12].map((n, s) => ({
  tokens: Uint32Array.from({ length: n }, (_, i) => (31 * s + 17 * i + 5) % config.vocabSize),
  mask: new Uint8Array(n).fill(1),
}));
export const [{ batch }] = packGroups([{ prompt: Uint32Array.of(3, 1, 4), samples }], 64);
const of = (value: (e: number) => number) => Float32Array.from(batch.targets, (_, e) => value(e));
const inputs = { oldLogProbs: of(() => -6), advantages: of((e) => (e % 2 ? 1 : -1)), weights: of(() => 0.1) };
const loss: TrainLoss = {
  kind: 'policy',
  spec: recipeSpec('grpo'),
  inputs: { ...inputs, klWeights: inputs.weights },
};
export const AT = { temperature: 1 };
export const ADAMW = { lr: 3e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weightDecay: 0, gradClip: 1 };

/** Updates the policy `updates` times. Returns everything that the updates computed. */
export async function train(model: ModelEngine, updates: number): Promise<unknown[]> {
  const seen: unknown[] = [];
  for (let u = 0; u < updates; u++) {
    for (let micro = 0; micro < 2; micro++) seen.push(await model.forwardBackward(batch, loss, AT));
    seen.push(await model.exportGradients(), await model.optimizerStep(ADAMW), await model.logProbs(batch, AT));
  }
  return [...seen, await model.exportWeights(), await model.exportOptimizer()];
}

const PROMPTS = [Uint32Array.of(9, 8, 7), Uint32Array.of(1, 2, 3, 4, 5, 6)];
let asked = 0;

export function request(s: number, maxNewTokens = 9): GenerateRequest {
  const contextIds = PROMPTS[s % 2];
  return {
    requestId: `${asked++}`,
    contextIds,
    promptLength: contextIds.length,
    key: [11, s],
    sampling: { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens, stopTokenIds: [] },
  };
}

/** Generates six samples for two prompts in four slots. */
export async function generate(rollout: RolloutEngine): Promise<Generation[]> {
  const requests = Array.from({ length: 6 }, (_, s) => request(s));
  return Promise.all(
    requests.map(async (q) => {
      const generation = await rollout.generate(q);
      rollout.release(q.requestId);
      return generation;
    }),
  );
}

/** Returns the sampled tokens and their log-probs, in the order of the requests, without request ids. */
export const drawn = (generations: Generation[]) =>
  generations.map(({ tokenIds, logProbs }) => ({ tokenIds, logProbs }));

/** Returns the largest difference between the log-probs that rollout recorded and those of the policy for the same tokens. */
export async function offPolicy(model: ModelEngine, generations: Generation[]): Promise<number> {
  let largest = 0;
  for (const [s, { tokenIds, logProbs }] of generations.entries()) {
    const sample = { tokens: tokenIds, mask: new Uint8Array(tokenIds.length).fill(1) };
    const [{ batch: own }] = packGroups([{ prompt: PROMPTS[s % 2], samples: [sample] }], 64);
    const now = await model.logProbs(own, AT);
    now.logProbs.forEach((value, t) => (largest = Math.max(largest, Math.abs(value - logProbs[t]))));
  }
  return largest;
}

export const bytesOf = (tensors: TensorMap) =>
  [...tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0);
