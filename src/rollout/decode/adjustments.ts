/** Checks of the sampling settings that adjust logits. Loads no kernels, so that agent loops can run without a GPU. */

import { MAX_ALTERNATIVES, MAX_BIASES } from '../../gpu/ops/adjustWidths.ts';
import type { SamplingParams } from '../types.ts';

/** True if a request uses settings that plain sampling does not support. */
export function isAdjusted(s: SamplingParams): boolean {
  const penalised = (s.repetitionPenalty ?? 1) !== 1 || Boolean(s.presencePenalty) || Boolean(s.frequencyPenalty);
  const changed = penalised || Boolean(s.minNewTokens) || Boolean(s.logitBias?.length);
  return changed || Boolean(s.toolCalls) || Boolean(s.jsonSchema) || Boolean(s.entropy) || Boolean(s.topLogprobs);
}

/** Throws RangeError for settings that the kernels do not support. */
export function checkAdjusted(s: Partial<SamplingParams>, vocabSize: number): void {
  const { repetitionPenalty = 1, logitBias = [], topLogprobs = 0 } = s;
  if (!(repetitionPenalty > 0))
    throw new RangeError(`repetitionPenalty is ${repetitionPenalty}. It must be above 0, and 1 is off.`);
  for (const key of ['presencePenalty', 'frequencyPenalty'] as const)
    if (!Number.isFinite(s[key] ?? 0))
      throw new RangeError(`${key} is ${s[key]}. It must be a finite number, and 0 is off.`);
  if (logitBias.length > MAX_BIASES)
    throw new RangeError(`logitBias has ${logitBias.length} entries. At most ${MAX_BIASES} are allowed.`);
  const outside = logitBias.find(([token]) => !Number.isInteger(token) || token < 0 || token >= vocabSize);
  if (outside) throw new RangeError(`logitBias names token ${outside[0]}; the vocabulary has 0 to ${vocabSize - 1}.`);
  const infinite = logitBias.find(([, bias]) => !(Math.abs(bias) <= 1e6));
  if (infinite) throw new RangeError(`logitBias of token ${infinite[0]} is ${infinite[1]}; allowed: -1e6 to 1e6.`);
  if (new Set(logitBias.map(([token]) => token)).size < logitBias.length)
    throw new RangeError('logitBias names a token twice. Give each token one bias.');
  if (topLogprobs > MAX_ALTERNATIVES)
    throw new RangeError(`topLogprobs is ${topLogprobs}. At most ${MAX_ALTERNATIVES} are returned.`);
}
