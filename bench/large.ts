/** Benchmarks a model that people know: SmolLM2-135M's shape with LoRA on all matrices, random weights, by kernel. */

import type { ModelConfig } from '../src/model/config.ts';
import { LORA_MODULES } from '../src/model/lora/weights.ts';
import { parameterCount } from '../src/model/params.ts';
import { WgslEngine } from '../src/model/wgslEngine.ts';
import type { Bench } from './bench.ts';
import { generateAll, rate, request, rollout } from './decode.ts';
import { HEADLINE, packOne, randomModel, sampleOf, tokenIds } from './models.ts';
import { kernelTimes } from './profile.ts';
import type { Report } from './report.ts';
import { bestSeconds } from './timing.ts';
import { trainRate, trainStep } from './train.ts';

const SMOLLM2: ModelConfig = {
  ...HEADLINE,
  vocabSize: 49_152,
  hiddenSize: 576,
  intermediateSize: 1536,
  numHiddenLayers: 30,
  numAttentionHeads: 9,
  numKeyValueHeads: 3,
  headDim: 64,
  ropeTheta: 100_000,
};
const lora = { rank: 16, alpha: 32, targetModules: [...LORA_MODULES], dropout: 0, useRslora: false, seed: 1 };

/** Prompt tokens, tokens per sample, samples; on a software adapter as few as give a figure within minutes. */
const HARDWARE = { prompt: 128, tokens: 64, samples: [1, 32, 128], groups: 4 };
const SOFTWARE = { prompt: 32, tokens: 8, samples: [1, 4], groups: 1 };

/** Uses one model for all measurements. Throws OutOfMemoryError. */
export async function benchLarge({ gpu, effort }: Bench): Promise<NonNullable<Report['large']>> {
  const { prompt: promptLength, tokens, samples, groups } = gpu.adapter.isSoftware ? SOFTWARE : HARDWARE;
  const model = randomModel(gpu, SMOLLM2, HEADLINE.maxPositionEmbeddings, { lora });
  const most = samples.at(-1)!;
  const engine = rollout(gpu, model, most, tokens, 1, promptLength);
  const prompt = tokenIds(promptLength, SMOLLM2.vocabSize);
  const decode: NonNullable<Report['large']>['decode'] = {};
  const run = (sequences: number, count: number) => () =>
    generateAll(
      engine,
      Array.from({ length: sequences }, (_, s) => request(prompt, s, count)),
    );
  for (const sequences of samples)
    decode[sequences] = rate(sequences * tokens, await bestSeconds(run(sequences, tokens), 1), SMOLLM2);
  // The prompt's pass samples the first of the two tokens, so one decode step follows it.
  decode[most].kernels = await kernelTimes(gpu, run(most, 2), effort, true);
  const batch = packOne(
    Array.from({ length: groups }, (_, g) => ({
      prompt: tokenIds(promptLength, SMOLLM2.vocabSize, g),
      samples: Array.from({ length: 8 }, (_, s) => sampleOf(tokenIds(tokens, SMOLLM2.vocabSize, 8 * g + s))),
    })),
  );
  const trainer = new WgslEngine(gpu, model, batch.tokens.length);
  const step = () => trainStep(trainer, batch);
  const train = trainRate(SMOLLM2, batch, await bestSeconds(step, 3));
  return {
    parameters: parameterCount(SMOLLM2),
    decode,
    train: { ...train, kernels: await kernelTimes(gpu, step, effort, true) },
  };
}
