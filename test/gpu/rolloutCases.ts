/** Requests for tests of the rollout engine on the tiny model. */
import type { WgslRolloutEngine } from '../../src/rollout/server/server.ts';
import type { GenerateRequest, Generation, SamplingParams } from '../../src/rollout/types.ts';
import { rng } from '../random.ts';
import { tinyConfig } from './tinyModel.ts';

export const SIZES = { maxNumSeqs: 16, slotCapacity: 40, maxPrompts: 6, maxPromptLength: 20, maxBatchedTokens: 48 };
const SAMPLING: SamplingParams = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  maxNewTokens: 12,
  stopTokenIds: [7],
};

const r = rng(11);
export const ids = (n: number) => Uint32Array.from({ length: n }, () => Math.floor(r.uniform() * tinyConfig.vocabSize));
export const prompts = [ids(5), ids(13), ids(20), ids(1)];

export function request(prompt: number, sample: number, sampling: Partial<SamplingParams> = {}): GenerateRequest {
  return {
    requestId: `${prompt}.${sample}`,
    contextIds: prompts[prompt],
    promptLength: prompts[prompt].length,
    key: [prompt * 977 + 5, sample],
    sampling: { ...SAMPLING, ...sampling },
  };
}

/** Runs all requests concurrently and releases each when all are done. */
export async function run(engine: WgslRolloutEngine, requests: GenerateRequest[]): Promise<Map<string, Generation>> {
  const generations = await Promise.all(requests.map((q) => engine.generate(q)));
  for (const { requestId } of requests) engine.release(requestId);
  return new Map(requests.map((q, i) => [q.requestId, generations[i]]));
}

/** Runs all requests concurrently and releases each as soon as that request is done. */
export function runFreeing(engine: WgslRolloutEngine, requests: GenerateRequest[]): Promise<Generation[]> {
  return Promise.all(
    requests.map(async (q) => {
      const generation = await engine.generate(q);
      engine.release(q.requestId);
      return generation;
    }),
  );
}
