import type { Generation, SamplingParams } from '../../rollout/types.ts';
import type { CallRequest } from './api/request.ts';

/** Sampling parameters that change the distribution from which tokens are sampled, each with its neutral value. */
const SAMPLER = {
  ...{ topP: 1, topK: 0, minP: 0, minNewTokens: 0 },
  ...{ repetitionPenalty: 1, presencePenalty: 0, frequencyPenalty: 0 },
} satisfies Partial<SamplingParams>;

/**
 * Returns the tokens with the log-probs under the distribution from which they were sampled, if parameters of the request changed this
 * distribution. The importance ratio in the loss then refers to the distribution that was really sampled.
 */
export function ofItsSampler(
  generation: Generation,
  { sampling, required, jsonSchema }: CallRequest,
  run: SamplingParams,
): Generation {
  const { logMass, ...rest } = generation;
  const isOther = (key: keyof typeof SAMPLER) =>
    (sampling[key] ?? run[key] ?? SAMPLER[key]) !== (run[key] ?? SAMPLER[key]);
  const isChanged =
    required ||
    jsonSchema ||
    sampling.logitBias?.length ||
    (Object.keys(SAMPLER) as (keyof typeof SAMPLER)[]).some(isOther);
  if (!logMass || !isChanged) return generation;
  return { ...rest, logProbs: generation.logProbs.map((logProb, t) => logProb - logMass[t]) };
}
