/** Encodes a slot's adjustments for the kernel, in the layout of `extras`. Unused words are poisoned. */
import { EXTRA_WIDTH } from '../../src/gpu/ops/adjustWidths.ts';
import type { Adjustments } from './adjustReference.ts';

const POISON = 0xdeadbeef;

export function extrasOf(settings: Adjustments & { topLogprobs?: number }): Uint32Array {
  const words = new Uint32Array(EXTRA_WIDTH).fill(POISON);
  const floats = new Float32Array(words.buffer);
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = [] } = settings;
  floats.set([repetitionPenalty, presencePenalty, frequencyPenalty]);
  words.set([settings.minNewTokens ?? 0, logitBias.length, settings.topLogprobs ?? 0], 3);
  logitBias.forEach(([token, bias], b) => {
    words[8 + b * 2] = token;
    floats[9 + b * 2] = bias;
  });
  return words;
}
