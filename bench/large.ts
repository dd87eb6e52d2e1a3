/** Benchmarks a model of the size that people train on a laptop: 12 layers, hidden 768, vocabulary 32k. */

import type { Gpu } from '../src/gpu/device.ts';
import type { ModelConfig } from '../src/model/config.ts';
import { parameterCount } from '../src/model/params.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import { generateAll, rate, request, rollout } from './decode.ts';
import { HEADLINE, plainBatch, randomModel, tokenIds } from './models.ts';
import type { Report } from './report.ts';
import { bestSeconds } from './timing.ts';
import { trainRate, trainStep } from './train.ts';

const LARGE: ModelConfig = {
  ...HEADLINE,
  vocabSize: 32_768,
  hiddenSize: 768,
  intermediateSize: 2048,
  numHiddenLayers: 12,
  numAttentionHeads: 12,
  numKeyValueHeads: 12,
  headDim: 64,
};
const [PROMPT, NEW_TOKENS, SEQUENCES, LENGTH] = [32, 8, 4, 64];

/** Uses one model for all measurements, because its weights, gradients and moments take 16 bytes per parameter. Throws OutOfMemoryError. */
export async function benchLarge(gpu: Gpu): Promise<NonNullable<Report['large']>> {
  const model = randomModel(gpu, LARGE);
  const engine = rollout(gpu, model, SEQUENCES, NEW_TOKENS, 1, PROMPT);
  const prompt = tokenIds(PROMPT, LARGE.vocabSize);
  const decode: NonNullable<Report['large']>['decode'] = {};
  for (const sequences of [1, SEQUENCES]) {
    const requests = Array.from({ length: sequences }, (_, s) => request(prompt, s, NEW_TOKENS));
    decode[sequences] = rate(sequences * NEW_TOKENS, await bestSeconds(() => generateAll(engine, requests), 1), LARGE);
  }
  const batch = plainBatch(SEQUENCES, LENGTH, LARGE.vocabSize);
  const trainer = new WgslEngine(gpu, model, batch.tokens.length);
  const train = trainRate(LARGE, batch, await bestSeconds(() => trainStep(trainer, batch), 1));
  return { parameters: parameterCount(LARGE), decode, train };
}
