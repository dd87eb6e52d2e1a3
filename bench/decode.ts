/** Benchmarks generation through the rollout engine, including scheduler, sampling and read-backs. */

import type { Gpu } from '../src/gpu/device.ts';
import type { LlamaModel } from '../src/model/llama.ts';
import { parameterCount } from '../src/model/params.ts';
import { WgslRolloutEngine } from '../src/rollout/server/server.ts';
import type { GenerateRequest } from '../src/rollout/types.ts';
import type { Bench } from './bench.ts';
import { HEADLINE, randomModel, tokenIds } from './models.ts';
import { kernelTimes } from './profile.ts';
import type { Rate, Report } from './report.ts';
import { bestSeconds } from './timing.ts';

const PROMPT = 8;

/** Generates `newTokens` tokens for each of `sequences` sequences on one short prompt. */
export async function benchDecode(gpu: Gpu, sequences: number, newTokens: number, rounds: number): Promise<Rate> {
  const seconds = await bestSeconds(decoder(gpu, sequences, newTokens), rounds);
  return rate(sequences * newTokens, seconds);
}

function decoder(gpu: Gpu, sequences: number, newTokens: number): () => Promise<void> {
  const engine = rollout(gpu, randomModel(gpu, HEADLINE), sequences, newTokens, 1, PROMPT);
  const prompt = tokenIds(PROMPT, HEADLINE.vocabSize);
  const requests = Array.from({ length: sequences }, (_, s) => request(prompt, s, newTokens));
  return () => generateAll(engine, requests);
}

const PROFILED = { sequences: 64, newTokens: 8 };

/** Measures prefill in prompt tokens per second: 16 prompts of 64 tokens, with one sampled token each. */
export async function benchPrefill(gpu: Gpu, rounds: number): Promise<Rate> {
  const [prompts, length] = [16, 64];
  const engine = rollout(gpu, randomModel(gpu, HEADLINE), prompts, 8, prompts, length);
  const requests = Array.from({ length: prompts }, (_, p) =>
    request(tokenIds(length, HEADLINE.vocabSize, p + 1), p, 1),
  );
  const seconds = await bestSeconds(async () => {
    await engine.resetCache();
    await generateAll(engine, requests);
  }, rounds);
  return rate(prompts * length, seconds);
}

export async function benchAllDecode({
  gpu,
  quick,
  rounds,
  effort,
}: Pick<Bench, 'gpu' | 'quick' | 'rounds' | 'effort'>) {
  const results: NonNullable<Report['decode']> = {};
  for (const sequences of quick ? [1, 64] : [1, 2, 4, 8, 16, 64, 256])
    results[sequences] = await benchDecode(gpu, sequences, quick ? 16 : 48, rounds);
  const { sequences, newTokens } = PROFILED;
  results[sequences].kernels = await kernelTimes(gpu, decoder(gpu, sequences, newTokens), effort);
  return results;
}

/** Creates a rollout engine with `slots` slots of `capacity` response tokens each, for `prompts` prompts of `promptLength` tokens. */
export function rollout(
  gpu: Gpu,
  model: LlamaModel,
  slots: number,
  capacity: number,
  prompts: number,
  promptLength: number,
) {
  const sizes = { maxNumSeqs: slots, slotCapacity: capacity, maxPrompts: prompts, maxPromptLength: promptLength };
  return new WgslRolloutEngine(gpu, model, { ...sizes, maxBatchedTokens: Math.max(1024, slots) });
}

export function request(prompt: Uint32Array, sample: number, maxNewTokens: number): GenerateRequest {
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, maxNewTokens, stopTokenIds: [] };
  return { requestId: `${sample}`, contextIds: prompt, promptLength: prompt.length, key: [7, sample], sampling };
}

export async function generateAll(engine: WgslRolloutEngine, requests: GenerateRequest[]): Promise<void> {
  await Promise.all(requests.map((r) => engine.generate(r)));
  for (const { requestId } of requests) engine.release(requestId);
}

/** Returns tokens per second, and the arithmetic rate of a forward pass, which takes 2 x parameters operations per token. */
export function rate(tokens: number, seconds: number, config = HEADLINE): Rate {
  return { tokensPerSecond: tokens / seconds, gflops: (2 * parameterCount(config) * tokens) / seconds / 1e9 };
}
