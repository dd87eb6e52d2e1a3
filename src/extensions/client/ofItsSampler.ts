import type { Generation, SamplingParams } from '../../rollout/types.ts';
import type { CallRequest } from './api/request.ts';

/** Parameters that change which tokens are sampled, with the values that turn them off. */
const SAMPLER = {
  ...{ topP: 1, topK: 0, minP: 0, minNewTokens: 0 },
  ...{ repetitionPenalty: 1, presencePenalty: 0, frequencyPenalty: 0 },
} satisfies Partial<SamplingParams>;

/**
 * Returns the tokens with the log-probs of the distribution that they were sampled from, if the request changed that distribution. The
 * ratio of the loss then starts from the sampler, and not from a policy that did not sample these tokens.
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
